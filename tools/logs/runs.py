"""The runs below one or several logs folders."""

import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from tools.errors import InputError, LogError
from tools.logs.run import SETTINGS, Run, read_object, time_of
from workshop.record.exercises import REPO
from workshop.record.printable import one_line
from workshop.record.schema import REQUIRED, STATES, MistypedError, RunRecord, typed

REFERENCE = REPO / "logs" / "reference"  # a folder per machine
_SEARCH_DEPTH = 3  # machine, experiment, run
_FEW = 200  # runs that are read within a second
_NAME = re.compile(r"\w[\w.+-]*")
T = TypeVar("T")


def read_run(folder: Path) -> Run:
    """The run in `folder`; a damaged run.json or a link gives a run with a `problem`, never an exception."""
    path = f"{folder}/run.json"
    try:
        if one_line(path) != path:
            raise LogError(folder, None, "control characters in its name", "a name without them")
        if folder.is_symlink():
            raise LogError(folder, None, "a symbolic link", "a folder; name one that lies elsewhere with --logs")
        content = read_object(path)
        for key in REQUIRED:
            if content.get(key) is None:
                raise LogError(path, None, f"no {key!r}", f"the keys {', '.join(REQUIRED)}")
        try:
            settings = typed(content.get("settings") or {}, SETTINGS, "settings")
            record = typed(content | {"settings": settings}, RunRecord)
        except MistypedError as error:
            raise LogError(path, None, error.found, error.expected) from error
        if record.state not in STATES:
            raise LogError(path, None, f"state {record.state!r}", f"one of {', '.join(STATES)}")
        for key in ("exercise", "config"):  # names of a folder and of a file that tools look for
            if (name := getattr(record, key)) and not _NAME.fullmatch(name):
                raise LogError(path, None, f"{key} {name!r}", "a name without a folder")
        if time_of(record.start_time) is None:
            raise LogError(path, None, f"start_time {record.start_time!r}", "an ISO 8601 time")
    except LogError as error:
        return Run(folder, problem=str(error))
    return Run(folder, record)


def find_runs(*logs_folders: Path, experiment: str | None = None) -> list[Run]:
    """All runs of the folders together, oldest first; with `experiment`, of that experiment or exercise only.

    The committed reference runs in logs/reference are other machines': they are found only when asked for by name.

    Raises:
        InputError: one is not a folder.
    """
    every: list[Run] = []
    for logs in logs_folders:
        if not logs.is_dir():
            raise InputError(f"{logs}: no such folder; runs are written to $LOG_DIR or logs/, give another with --logs")
        every += map(read_run, progress(list(run_folders(logs, 0)), "reading run.json"))
    every.sort(key=lambda run: (run.start, run.folder))
    if experiment is None:
        return every
    # A run.json that cannot be read says neither, but its folder is named after the experiment.
    return [
        run
        for run in every
        if experiment in (run.record.exercise, run.record.experiment)
        or (run.problem and run.folder.parent.name == experiment)
    ]


def run_folders(folder: Path, depth: int) -> Iterator[Path]:
    """The folders with a run.json, and those that cannot be read: no permission, or a link out of the logs."""
    if os.path.lexists(f"{folder}/run.json"):
        yield folder
    elif depth < _SEARCH_DEPTH:
        try:
            entries = list(os.scandir(folder))
        except OSError:
            yield folder
            return
        for entry in entries:
            hidden = entry.name.startswith(".")  # .code: the snapshots of `tools submit`
            if not entry.is_dir() or hidden or (depth == 0 and entry.name == "reference"):
                continue
            path = Path(entry.path)
            if not entry.is_symlink():
                yield from run_folders(path, depth + 1)
            elif not path.resolve().is_relative_to(path.parents[depth].resolve()):
                yield path


def default_logs() -> Path:
    """Where the launchers write: $LOG_DIR, else logs/ of the repository, seen from the current folder if inside it."""
    if os.environ.get("LOG_DIR"):
        return Path(os.environ["LOG_DIR"])
    logs = REPO / "logs"
    return logs.relative_to(Path.cwd()) if logs.is_relative_to(Path.cwd()) else logs


def progress(items: Sequence[T], what: str) -> Iterable[T]:
    """The items, after a second with a bar; in a log file it writes a line every half minute at most."""
    if len(items) < _FEW:
        return items
    from tqdm import tqdm  # the import alone takes a tenth of a second

    return tqdm(items, what, unit="run", delay=1, mininterval=0.2 if sys.stderr.isatty() else 30)
