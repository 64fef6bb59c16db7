"""The ends of files that grow: what was written since the last look, and never more than a piece of it."""

from __future__ import annotations

import os
from pathlib import Path

from evidence.plain_files import open_plain
from evidence.printable import one_line

MOST_BYTES = 64 << 10


def read_end(path: Path, start: int, most_bytes: int = MOST_BYTES) -> tuple[bytes, int]:
    """The bytes from `start` on, or the last `most_bytes` of them, and where the file ended.

    Nothing of a file that is no plain file or cannot be read; all anew of one that has become shorter.
    """
    try:
        with os.fdopen(open_plain(path), "rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            begin = max(start if start <= size else 0, size - most_bytes)
            file.seek(begin)
            data = file.read(most_bytes)
            return data, begin + len(data)
    except OSError:
        return b"", start


def first_line(path: Path) -> str:
    try:
        with os.fdopen(open_plain(path), "rb", buffering=0) as file:
            return file.read(1024).partition(b"\n")[0].decode(errors="replace")
    except OSError:
        return ""


def last_lines(path: Path, count: int) -> list[str]:
    """Of a log, with what steers a terminal as escapes; of a progress bar the last state only."""
    data, _ = read_end(path, 0)
    lines = [line.rsplit("\r", 1)[-1] for line in data.decode(errors="replace").rstrip().split("\n")]
    return [one_line(line) for line in lines if line.strip()][-count:]
