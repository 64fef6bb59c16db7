"""Why a job failed, read from its output (train.out): by the launcher at its end, by the tools for a run without one.

One failure prints many errors: when a rank runs out of memory, the others report an NCCL timeout half an hour later.
So the kinds are ranked by what can cause what, and within a kind the first in the file counts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_TASK = r"srun: error: [^:]*: tasks? [^:]*: "  # how srun begins its report of a task that did not end well
# A task that TERM ended has not failed: a cancelled step's tasks end so, and srun may say it before SLURM says why.
_TASK_FAILED = re.compile(_TASK + r"(?!Terminated|Exited with exit code 143)")
# What somebody else did, unless a task had failed before: then srun itself ends the step (--kill-on-bad-exit), and
# that reads the same.
_BY_OTHERS = [
    ("cancelled", r"slurmstepd.*CANCELLED AT|scancel"),
    ("failed", _TASK + r"(?:Killed|Exited with exit code 137)"),
]
# How torchrun and deepspeed name the first rank that ended, where it was killed; the others they end themselves.
_RANK_KILLED = ("failed", r"failed \(exitcode: -9\) local_rank: \d+|exits with return code = -9\b")
# Ranked: a kind is never the consequence of one further down.
_KINDS = [
    # The last of these is what srun says of a task.
    (
        "oom",
        r"OutOfMemoryError|CUDA out of memory|DefaultCPUAllocator: .*allocate|oom[-_ ]kill|\bMemoryError\b"
        r"|Out Of Memory",
    ),
    ("timeout", r"DUE TO TIME LIMIT"),
    ("preempted", r"DUE TO PREEMPTION"),
    *_BY_OTHERS,
    _RANK_KILLED,
    # The exception itself at the start of its line, as a traceback ends, or `error: …`, which is how the workshop's own
    # code reports a mistake in the input; a warning in the middle of a line is none.
    ("failed", r"(?:^|\r)(?:\[rank\d+\]: ?)?(?:error(?: \(rank \d+\))?: |[\w.]*(?:Error|Exception)(?:: |$))"),
    ("failed", r"Watchdog caught collective operation timeout"),
    ("failed", _TASK_FAILED.pattern),
]
_PATTERNS = [(state, re.compile(pattern), (state, pattern) in _BY_OTHERS) for state, pattern in _KINDS]


@dataclass(frozen=True)
class Cause:
    """What decided.

    Attributes: state: a state of logs/README.md; line: counted from 1; text: that line; task_failed: whether srun
        reports, on any line, that a task failed; rank_killed: whether what decided is that a rank was killed (SIGKILL).
    """

    state: str
    line: int
    text: str
    task_failed: bool
    rank_killed: bool


def cause(path: Path) -> Cause | None:
    """The first cause of a failure, or None if the output names none."""
    best: tuple[int, str, int, str] | None = None  # rank, state, line, text
    task_failed = False
    # newline="\n": a progress bar's carriage returns are no line ends to grep -n or an editor.
    with path.open(encoding="utf-8", errors="replace", newline="\n") as lines:
        for number, line in enumerate(lines, 1):
            for rank, (state, pattern, by_others) in enumerate(_PATTERNS[: best[0] if best else None]):
                if (match := pattern.search(line)) and not (by_others and task_failed):
                    start = line.rfind("\r", 0, match.end()) + 1
                    best = rank, state, number, line[start:].strip()[:500]
                    break
            task_failed = task_failed or _TASK_FAILED.search(line) is not None
    return Cause(*best[1:], task_failed, _KINDS[best[0]] == _RANK_KILLED) if best else None
