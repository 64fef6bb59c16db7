"""Figures of log files, each file parsed once: many in one go, and none again that has not changed since.

A table needs a few figures of a log (peak, mean, ...), not its samples, so only figures are kept: in memory, and after
the command in a hidden file in the logs folder (tools/logs/figures_file.py). There they are valid for a log of the same
size and modification time; any other is parsed again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evidence import causes as failure
from tools.errors import LogError, read_or_error
from tools.logs import deepspeed_timers, figures_file, nccl_log, nvidia_smi, psrecord, trainer_log
from tools.logs.figures_file import Known

# Enough logs to make a call of the reader worth it, few enough to be a few megabytes.
_LOGS_AT_ONCE = 64
_REFERENCE = Path(__file__).resolve().parents[2] / "logs" / "reference"


@dataclass(frozen=True)
class Kind:
    """A kind of log. Attributes: figures: the dataclass of its figures; read: from paths to figures or errors."""

    figures: type
    read: Callable[[list[str]], list[Any]]


def _one_by_one(read: Callable[[Path], Any]) -> Callable[[list[str]], list[Any]]:
    return lambda paths: [read_or_error(read, Path(path)) for path in paths]


KINDS = {
    "gpu": Kind(nvidia_smi.GpuFigures, nvidia_smi.figures),
    "cpu": Kind(psrecord.CpuFigures, psrecord.figures),
    "training": Kind(trainer_log.TrainingFigures, _one_by_one(trainer_log.figures)),
    "timers": Kind(deepspeed_timers.StepParts, _one_by_one(deepspeed_timers.read)),
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
        self._known: Known = (
            {self._prefix + name: files for name, files in figures_file.read(root).items()} if root else {}
        )
        self._checked: Known = {}  # those whose file is still the same
        self._new: Known = {}  # those not written down yet
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

    def all_of(self, questions: list[list[Callable[[], Any]]]) -> list[list[Any]]:
        """The answers to lists of questions that ask for figures; the logs they need, and no others, are read together.

        Each list is asked in order up to an answer that has to wait; then what all of them wait for is read.
        """
        answers: list[list[Any]] = [[] for _ in questions]
        waiting = list(range(len(questions)))
        while waiting:
            self._pending = {}
            try:
                waiting = [i for i in waiting if not _answered(questions[i], answers[i])]
                wanted = list(self._pending)
            finally:
                self._pending = None
            self._parse(wanted)
        return answers

    def _entry(self, folder: str, name: str) -> list:
        """What is known of a file as it is now."""
        checked = self._checked.setdefault(folder, {})
        if name in checked:
            return checked[name]
        # Before reading: what is written in between changes the file's state, and so is not missed the next time.
        now = os.stat(f"{folder}/{name}")  # noqa: PTH116  (making a Path costs more than the call)
        files = self._known.setdefault(folder, {})
        entry = files.get(name)
        if entry is None or entry[0] != now.st_size or entry[1] != now.st_mtime_ns:
            entry = files[name] = [now.st_size, now.st_mtime_ns, {}]
        checked[name] = entry
        return entry

    def _parse(self, wanted: list[Wanted]) -> None:
        for kind, reader in KINDS.items():
            files = [(folder, name) for wanted_kind, folder, name in wanted if wanted_kind == kind]
            for start in range(0, len(files), _LOGS_AT_ONCE):
                batch = files[start : start + _LOGS_AT_ONCE]
                found = reader.read([f"{folder}/{name}" for folder, name in batch])
                for (folder, name), figures in zip(batch, found, strict=True):
                    self._entry(folder, name)[2][kind] = _to_json(figures)
                    self._new.setdefault(folder, {})[name] = self._entry(folder, name)

    def pop_new(self) -> Known:
        """What was parsed since the last call: for `learn`, where a part of the work is another process's."""
        new, self._new = self._new, {}
        return new

    def learn(self, new: Known) -> None:
        """Take over what another process has parsed."""
        for folder, files in new.items():
            for known in (self._known, self._checked, self._new):
                known.setdefault(folder, {}).update(files)

    def save(self) -> None:
        """Write the known figures down, if there are new ones; the committed reference logs stay as they are."""
        if not (self._new and self._root) or self._root.resolve().is_relative_to(_REFERENCE):
            return
        names = [name for name in map(str, self._folders) if name in self._known and name.startswith(self._prefix)]
        if names:
            figures_file.write(self._root, {name.removeprefix(self._prefix): self._known[name] for name in names})
            self._new = {}


def _answered(questions: list[Callable[[], Any]], answers: list[Any]) -> bool:
    """Go on answering; whether all are answered now."""
    try:
        for question in questions[len(answers) :]:
            answers.append(question())
    except PendingError:
        return False
    return True


def _to_json(found: Any) -> list:
    if isinstance(found, LogError):
        return ["damaged", found.line, found.found, found.expected]
    return ["read", vars(found) if found is not None else None]


def _from_json(kind: str, folder: str, name: str, entry: list) -> Any:
    if entry[0] == "damaged":
        raise LogError(Path(folder, name), *entry[1:])
    return None if entry[1] is None else KINDS[kind].figures(**entry[1])
