"""A run as the page shows it: facts, figures, settings, links to its files."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tools.errors import LogError, UnavailableError
from tools.logs.figures import OF_ONE_RUN, figure, measure, shown
from tools.logs.live_run import look
from tools.logs.run import Run, duration
from workshop.record.printable import one_line

_LONGEST_ID = 80
# Keys of run.json that the page shows in other parts, or that only programs read.
_ELSEWHERE = {"settings", "versions", "command", "trainer_classes", "reason", "note", "git_diff", "version"}


@dataclass(frozen=True)
class Entry:
    """A run and its place in the page.

    Attributes:
        id: file name of its page, without the suffix; of letters, digits, `_` and `-` only.
        own: one of the runs asked for; False: a reference run.
        where: its logs folder, of a reference run the machine's.
        trouble: what is wrong with one's own run, as `watch` says it; "" for nothing.
    """

    id: str
    run: Run
    own: bool
    where: str
    trouble: str = ""

    @property
    def name(self) -> str:
        """What a list calls it: exercise, configuration or rung, fault, folder."""
        run = self.run
        fault = "" if run.fault in (None, "none") else run.fault.replace("_", " ")
        what = [run.record.exercise or run.folder.parent.name, run.configuration, fault]
        return " · ".join(one_line(str(part)) for part in (*what, run.folder.name) if part)


def entries(own: Sequence[Run], reference: Sequence[Run], reference_root: Path) -> list[Entry]:
    """One's own runs as `watch` has them, what is in trouble first; then the reference runs, the newest first."""
    taken: set[str] = set()
    live = sorted(map(look, reversed(own)), key=lambda one: one.urgency)
    found = []
    for run, is_own, trouble in [
        *((one.run, True, one.trouble) for one in live),
        *((run, False, "") for run in reversed(reference)),
    ]:
        machine = "" if is_own else run.folder.resolve().relative_to(reference_root).parts[0]
        name = f"{machine}-{run.folder.parent.name}-{run.folder.name}".removeprefix("-")
        identity = _unique(re.sub(r"[^A-Za-z0-9_-]+", "-", name)[-_LONGEST_ID:].strip("-") or "run", taken)
        found.append(Entry(identity, run, is_own, machine or str(run.folder.parent.parent), trouble))
    return found


def _unique(name: str, taken: set[str]) -> str:
    """Also where a file system ignores case."""
    number, free = 2, name
    while free.lower() in taken:
        free, number = f"{name}-{number}", number + 1
    taken.add(free.lower())
    return free


def links(entry: Entry, page_folder: Path) -> dict[str, str]:
    """The run's files, folders left out: name -> where it is, seen from a folder of the page."""
    base = os.path.relpath(entry.run.folder.resolve(), page_folder)
    return {name: quote(os.fsencode(f"{base}/{name}")) for name in entry.run.files}


def figures(run: Run) -> tuple[dict[str, str], list[str]]:
    """Every figure that the run has, name to text; and what is wrong in which line of the logs that cost figures."""
    found, damaged = {}, []
    for name, one in OF_ONE_RUN.items():
        try:
            found[name] = one.written(measure(run, name))
        except UnavailableError:
            continue
        except LogError as error:
            damaged.append(str(error))
    return found, damaged


def listed(run: Run, name: str) -> str:
    """A figure in the list of runs; PyTorch's peak where nvidia-smi left no log."""
    if run.state != "completed":
        return ""
    own, allocated = figure(run, name), figure(run, "peak_allocated_mib")
    if name == "peak_gpu_mib" and own is None and allocated is not None:
        return f"{OF_ONE_RUN[name].written(allocated)} (PyTorch)"
    return shown(run, name)


def settings(run: Run) -> dict[str, str]:
    """What the run was asked for, and with which versions it ran, as text."""
    found = run.settings | {f"version of {name}": version for name, version in run.record.versions.items()}
    return {one_line(str(name)): _as_text(value) for name, value in found.items()}


def facts(run: Run) -> dict[str, str]:
    """What ran, where and how it ended: what run.json says in a word or a number, and what follows from it."""
    record, runtime = run.record, run.runtime_s
    found = {name.replace("_", " "): value for name, value in vars(record).items() if name not in _ELSEWHERE}
    found |= {
        "model": record.model.name or run.model,
        "sharding": run.method,  # as observed
        "gpu names": ", ".join(sorted(set(record.gpu_names))),
        "attempts": "; ".join(text for _, text in run.resumptions),
        "owner of the folder": run.owner,
        "runtime": "" if runtime is None else duration(runtime),
    }
    return {name: _as_text(value) for name, value in found.items() if value is not False and _as_text(value)}


def _as_text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else one_line(str(value))
