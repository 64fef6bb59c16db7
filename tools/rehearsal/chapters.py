"""The chapters of a rehearsal, and what became of their runs."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.errors import InputError
from tools.logs.run import Run
from tools.submit.submissions import Submission, read
from tools.submit.submitted import sourced_environment
from tools.tables.repository import ROOT

_CHAPTER_LINK = re.compile(r"\]\(([\w-]+)/README\.md\)")


@dataclass(frozen=True)
class Chapter:
    """Attributes: name: its folder; list: of its runs; lines: of that list."""

    name: str
    list: Path
    lines: list[Submission]


@dataclass(frozen=True)
class Outcome:
    """What became of a line.

    Attributes: run: the newest one of it, None if none began; skipped: why it cannot run here.
    """

    line: Submission
    run: Run | None
    skipped: str = ""

    @property
    def state(self) -> str:
        return "skipped" if self.skipped else self.run.state if self.run else "not started"

    @property
    def failed(self) -> bool:
        return self.state not in ("completed", "skipped")


def tiny_environment(shell: Mapping[str, str]) -> dict[str, str]:
    """The shell's variables after `source tiny.env`; where the runs go is the rehearsal's own.

    One thread per process, unless the shell says otherwise: many lines have two processes, for which two cores are due.
    """
    tiny = sourced_environment(ROOT / "tiny.env", {"OMP_NUM_THREADS": shell.get("OMP_NUM_THREADS", "1")})
    own = {name: value for name, value in shell.items() if name not in ("LOG_DIR", "RUN_DIR", "SUBMISSION")}
    names = re.findall(r"\b([A-Z_0-9]+)=", (ROOT / "tiny.env").read_text())
    return own | {name: tiny[name] for name in names}


def chapters(names: Sequence[str], environment: Mapping[str, str]) -> list[Chapter]:
    """Those named, or all, in the order of the course.

    Raises:
        InputError: a name has no tiny.txt.
    """
    every = {path.parent.name: path for path in ROOT.glob("*/tiny.txt")}
    order = [name for name in _CHAPTER_LINK.findall((ROOT / "README.md").read_text()) if name in every]
    order = list(dict.fromkeys([*order, *sorted(every)]))
    if unknown := [name for name in names if name.strip("/") not in every]:
        raise InputError(
            f"{', '.join(unknown)}: no tiny.txt in a folder of this name; expected some of {', '.join(order)}"
        )
    wanted = {name.strip("/") for name in names} or set(order)
    return [Chapter(name, every[name], read(every[name], environment)) for name in order if name in wanted]


def outcomes(chapter: Chapter, runs: Sequence[Run], local: bool) -> list[Outcome]:
    """What became of the chapter's lines. `runs`: oldest first."""
    found = []
    for line in chapter.lines:
        own = [run for run in runs if run.record.get("submission") == line.text and not run.problem]
        own = [run for run in own if run.record["exercise"] == line.exercise.name]
        nodes = line.count("nodes")
        skipped = f"needs SLURM for its {nodes} nodes" if local and nodes > 1 else ""
        found.append(Outcome(line, own[-1] if own else None, skipped))
    return found
