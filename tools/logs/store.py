"""Figures of a logs folder's runs: measured once, in several processes, and remembered for the next command.

They are kept in a hidden file in the logs folder, and are valid for a run whose files have the same sizes and
modification times. The file may be deleted at any time, which costs time and nothing else. One that is damaged, or was
written by other code than this, counts as none.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import zlib
from collections.abc import Iterator, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import evidence
from tools.logs.figures import RunFigures
from tools.logs.measure import measure
from tools.logs.processes import in_processes
from tools.logs.run import Run

FILE_NAME = ".figures.json"
_RUNS_AT_ONCE = 256
_REFERENCE = Path(__file__).resolve().parents[2] / "logs" / "reference"  # stays as it was committed
Files = dict[str, list[int]]  # name: size, modification time (ns)


class Store:
    """The figures of the runs below one logs folder.

    Args:
        logs: where the file is read, and written by `save`; None: figures are kept in memory only.
        folders: all run folders below `logs`; of others nothing is written down any more.
    """

    def __init__(self, logs: Path | None = None, folders: Sequence[Path] = ()):
        self._logs, self._folders = logs, folders
        self._seen: dict[str, tuple[Files, RunFigures]] = {}
        self._new = False

    @cached_property
    def _remembered(self) -> dict[str, list]:
        """Run folder, relative to the logs folder -> its files, what is known of its figures."""
        if not self._logs:
            return {}
        try:
            head, _, content = (self._logs / FILE_NAME).read_bytes().partition(b"\n")
        except OSError:
            return {}
        return json.loads(content) if head == _head(content) else {}

    def figures(self, run: Run) -> RunFigures:
        """A run's figures, remembered or measured now."""
        # The files before their content: what is written in between is seen the next time.
        files = _files(run)
        found = self._known(run, files) or measure(run)
        self._remember(run, files, found)
        return found

    def measure_all(self, runs: Sequence[Run]) -> Iterator[Run]:
        """The runs in order, each when its figures are known; what has to be measured is so in several processes."""
        files = [_files(run) for run in runs]
        unknown = [number for number, run in enumerate(runs) if not self._known(run, files[number])]
        chunks = [unknown[start : start + _RUNS_AT_ONCE] for start in range(0, len(unknown), _RUNS_AT_ONCE)]
        measured = in_processes(lambda chunk: [measure(runs[number]) for number in chunk], chunks)
        new = (pair for chunk, found in zip(chunks, measured, strict=True) for pair in zip(chunk, found, strict=True))
        waiting = next(new, None)
        for number, run in enumerate(runs):
            found = self._known(run, files[number])
            if waiting and waiting[0] == number:
                found, waiting = waiting[1], next(new, None)
            self._remember(run, files[number], found)
            run.__dict__["figures"] = found
            yield run

    def _known(self, run: Run, files: Files) -> RunFigures | None:
        name = self._name(run)
        if name in self._seen and self._seen[name][0] == files:
            return self._seen[name][1]
        remembered = self._remembered.get(name)
        return RunFigures(**remembered[1]) if remembered and remembered[0] == files else None

    def _remember(self, run: Run, files: Files, found: RunFigures) -> None:
        name = self._name(run)
        self._new = self._new or self._remembered.get(name, [None])[0] != files
        self._seen[name] = files, found

    def _name(self, run: Run) -> str:
        return os.path.relpath(run.folder, self._logs) if self._logs else str(run.folder)

    def save(self) -> None:
        """Write down what is known, if any of it is new.

        The file is replaced as a whole: of two commands at once the later one's counts, and none reads half a file. A
        folder that cannot be written to stays as it is.
        """
        if not (self._new and self._logs) or self._logs.resolve().is_relative_to(_REFERENCE):
            return
        names = [os.path.relpath(folder, self._logs) for folder in self._folders]
        if "." in names:  # the logs folder is itself a run's
            return
        new = {name: [files, _without_defaults(found)] for name, (files, found) in self._seen.items()}
        known = {name: entry for name in names if (entry := new.get(name) or self._remembered.get(name))}
        content = json.dumps(known).encode()
        temporary = self._logs / f"{FILE_NAME}.{secrets.token_hex(4)}"
        with contextlib.suppress(OSError):
            temporary.write_bytes(_head(content) + b"\n" + content)
            temporary.replace(self._logs / FILE_NAME)
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        self._new = False


def _files(run: Run) -> Files:
    found = {}
    for entry in os.scandir(run.folder):
        if not entry.is_dir():
            now = entry.stat()
            found[entry.name] = [now.st_size, now.st_mtime_ns]
    return found


def _without_defaults(found: RunFigures) -> dict[str, Any]:
    return {name: value for name, value in vars(found).items() if value not in (None, "", {})}


def _head(content: bytes) -> bytes:
    return b"%s %08x" % (code_version(), zlib.crc32(content))


@cache
def code_version() -> bytes:
    """A digest of the code: whoever changes a parser need not remember that figures are remembered."""
    code = hashlib.blake2b(digest_size=8)
    for folder in (Path(evidence.__file__).parent, Path(__file__).parent):
        for path in sorted(folder.glob("*.py")):
            code.update(path.read_bytes())
    return code.hexdigest().encode()
