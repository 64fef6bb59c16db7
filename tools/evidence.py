"""Figures of log files, each file parsed once: many in one go, and none again that has not changed since.

A table needs a few figures of a log (peak, mean, ...), not its samples, so only figures are kept: in memory, and after
the command in a hidden file in the logs folder. There they are valid for a file of the same size and modification time,
read by the same code; anything else is parsed again, so deleting the file costs time and nothing else.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tools import failure, nccl_log, nvidia_smi, psrecord, trainer_log
from tools.errors import LogError, read_or_error

FILE_NAME = ".figures.json"
# Enough logs to make a call of the reader worth it; a few megabytes at a time per thread.
_LOGS_AT_ONCE = 32
# More threads than this would wait for each other: Python runs one at a time, only reading and parsing overlap.
_MOST_THREADS = 4
_REFERENCE = Path(__file__).resolve().parents[1] / "logs" / "reference"


@dataclass(frozen=True)
class Kind:
    """A kind of log. Attributes: figures: the dataclass of its figures; read: from paths to figures or errors."""

    figures: type
    read: Callable[[list[Path]], list[Any]]


def _one_by_one(read: Callable[[Path], Any]) -> Callable[[list[Path]], list[Any]]:
    return lambda paths: [read_or_error(read, path) for path in paths]


KINDS = {
    "gpu": Kind(nvidia_smi.GpuFigures, nvidia_smi.figures),
    "cpu": Kind(psrecord.CpuFigures, psrecord.figures),
    "training": Kind(trainer_log.TrainingFigures, _one_by_one(trainer_log.figures)),
    "fabric": Kind(nccl_log.FabricFigures, _one_by_one(nccl_log.figures)),
    "cause": Kind(failure.Cause, _one_by_one(failure.cause)),
}
Wanted = tuple[str, str, str]  # kind, folder and name of a file


class PendingError(Exception):
    """While several figures are being collected: this one is not known yet."""


class Evidence:
    """The figures of the logs below one folder.

    Args:
        root: where the file of known figures is and is written by `save`; None: figures are kept in memory only.
        folders: all run folders below `root`; of others nothing is written down any more.
    """

    def __init__(self, root: Path | None = None, folders: Sequence[Path] = ()):
        self._folders = folders
        self._root = root
        # What the names of the run folders begin with; Path("logs") / "x" is logs/x, but Path(".") / "x" is x.
        self._prefix = str(root / "x")[:-1] if root else ""
        # Folder -> file -> [size, modification time (ns), {kind: what was found}]; strings, as in the JSON file.
        self._known: dict[str, dict[str, list]] = self._load() if root else {}
        self._checked: dict[str, dict[str, list]] = {}  # those of them whose file was looked at
        self._changed = False
        self._pending: dict[Wanted, None] | None = None

    def figures(self, kind: str, folder: str, names: list[str]) -> list[Any]:
        """The figures of a folder's files of one kind.

        Raises:
            LogError: one of them is damaged.
            PendingError: they are being collected, see `all_of`.
        """
        entries = [self._entry(folder, name) for name in names]
        missing = [(kind, folder, name) for name, entry in zip(names, entries, strict=True) if kind not in entry[2]]
        if missing and self._pending is not None:
            self._pending |= dict.fromkeys(missing)
            raise PendingError
        if missing:
            self._parse(missing)
        return [_from_json(kind, folder, name, entry[2][kind]) for name, entry in zip(names, entries, strict=True)]

    def all_of(self, questions: list[Callable[[], Any]]) -> list[Any]:
        """The answers to questions that ask for figures; the logs they need are parsed together, and no others."""
        answers: list[Any] = [None] * len(questions)
        open_questions = list(range(len(questions)))
        while open_questions:
            self._pending, waiting = {}, []
            for position in open_questions:
                try:
                    answers[position] = questions[position]()
                except PendingError:
                    waiting.append(position)
            wanted, self._pending, open_questions = list(self._pending), None, waiting
            if wanted:
                self._parse(wanted)
        return answers

    def _entry(self, folder: str, name: str) -> list:
        """What is known of a file as it is now."""
        checked = self._checked.setdefault(folder, {})
        if name in checked:
            return checked[name]
        # Before reading: what is written in between changes the file's state, and so is not missed the next time.
        now = os.stat(f"{folder}/{name}")  # noqa: PTH116: a Path costs as much as the call, and there are 50,000
        files = self._known.setdefault(folder, {})
        entry = files.get(name)
        if entry is None or entry[0] != now.st_size or entry[1] != now.st_mtime_ns:
            entry = files[name] = [now.st_size, now.st_mtime_ns, {}]
        checked[name] = entry
        return entry

    def _parse(self, wanted: list[Wanted]) -> None:
        batches = []
        for kind in KINDS:
            files = [(folder, name) for wanted_kind, folder, name in wanted if wanted_kind == kind]
            batches += [(kind, files[i : i + _LOGS_AT_ONCE]) for i in range(0, len(files), _LOGS_AT_ONCE)]
        for (kind, files), found in zip(batches, _in_threads(_read_batch, batches), strict=True):
            for (folder, name), figures in zip(files, found, strict=True):
                self._entry(folder, name)[2][kind] = _to_json(figures)
        self._changed = True

    def save(self) -> None:
        """Write the known figures down, if there are new ones; a folder that cannot be written to is left as it is.

        The file is replaced as a whole, so of two commands at once the later one's counts and none is damaged.
        The committed reference logs stay as they were committed.
        """
        if not (self._changed and self._root) or self._root.resolve().is_relative_to(_REFERENCE):
            return
        names = [name for name in map(str, self._folders) if name in self._known and name.startswith(self._prefix)]
        if not names:
            return
        content = json.dumps({name.removeprefix(self._prefix): self._known[name] for name in names}).encode()
        temporary = self._root / f"{FILE_NAME}.{secrets.token_hex(4)}"
        with contextlib.suppress(OSError):
            temporary.write_bytes(b"%s %08x\n%s" % (_code_version(), zlib.crc32(content), content))
            temporary.replace(self._root / FILE_NAME)
            self._changed = False
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)

    def _load(self) -> dict[str, dict[str, list]]:
        """What `save` wrote; {} if there is no such file, it is damaged, or other code wrote it."""
        try:
            head, _, content = (self._root / FILE_NAME).read_bytes().partition(b"\n")
        except OSError:
            return {}
        if head != b"%s %08x" % (_code_version(), zlib.crc32(content)):
            return {}
        return {self._prefix + name: files for name, files in json.loads(content).items()}


def _in_threads(function: Callable, batches: list[tuple]) -> Iterator[Any]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads = min(cores, _MOST_THREADS, len(batches))
    if threads <= 1:
        yield from map(function, batches)
        return
    with ThreadPoolExecutor(threads) as pool:
        yield from pool.map(function, batches)


def _read_batch(batch: tuple[str, list[tuple[str, str]]]) -> list[Any]:
    kind, files = batch
    return KINDS[kind].read([Path(folder, name) for folder, name in files])


def _to_json(found: Any) -> list:
    if isinstance(found, LogError):
        return ["damaged", found.line, found.found, found.expected]
    return ["read", vars(found) if found is not None else None]


def _from_json(kind: str, folder: str, name: str, entry: list) -> Any:
    if entry[0] == "damaged":
        raise LogError(Path(folder, name), *entry[1:])
    return None if entry[1] is None else KINDS[kind].figures(**entry[1])


@cache
def _code_version() -> bytes:
    """A digest of the code that reads logs: a change of it makes all known figures unknown."""
    code = hashlib.blake2b(digest_size=8)
    for path in sorted(Path(__file__).parent.glob("*.py")):
        code.update(path.read_bytes())
    return code.hexdigest().encode()
