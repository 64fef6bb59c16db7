"""The ends of files that grow or are long: never more than a piece of them."""

from __future__ import annotations

import os
import re
from pathlib import Path

from run_folder.printable import printable
from run_folder.safe_open import open_plain

_LOG_BYTES, _LONGEST_LINE = 64 << 10, 300
_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def read_end(path: Path, most_bytes: int) -> list[str]:
    """The lines within a file's last bytes, without one that is cut at its beginning; the last one is not ended yet.

    Of a file that is no plain file or cannot be read there are none.
    """
    try:
        with os.fdopen(open_plain(path), "rb", buffering=0) as file:
            start = file.seek(max(0, os.fstat(file.fileno()).st_size - most_bytes))
            return file.read(most_bytes).decode(errors="replace").split("\n")[start > 0 :]
    except OSError:
        return []


def first_line(path: Path) -> str:
    try:
        with os.fdopen(open_plain(path), "rb", buffering=0) as file:
            return file.read(1024).partition(b"\n")[0].decode(errors="replace")
    except OSError:
        return ""


def last_lines(path: Path, count: int) -> list[str]:
    """A log's last lines as a terminal shows them: the last state of a progress bar, no colours, no control codes."""
    lines = [line.rstrip("\r").rpartition("\r")[2] for line in read_end(path, _LOG_BYTES)]
    shown = [printable(_COLOUR.sub("", line)) for line in lines if line.strip()][-count:]
    return [line if len(line) <= _LONGEST_LINE else line[: _LONGEST_LINE - 1] + "…" for line in shown]
