"""A run's progress and problems, from its logs as they are now."""

from __future__ import annotations

import math
import re
import time
from dataclasses import dataclass
from pathlib import Path

from tools.errors import LogError
from tools.logs.run import Run
from workshop.record.errors import read_plain
from workshop.record.printable import printable

_SILENT_S = 120
_RECENT_STEPS = 20
_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_BAD = ("lost", "oom", "failed", "timeout", "unreadable")


@dataclass(frozen=True)
class LiveRun:
    """What is known of a run so far.

    Attributes:
        run: with run.json as it was at the look.
        step: the last one in steps.csv, 0 before the first; steps: of the whole training, None before it is known.
        loss: of the last step, None before the first.
        left_s: the steps that are left, at the pace of the last ones; evaluation and saving come on top.
        tokens_per_s: over the last few steps.
        trouble: what is wrong in a few words; "" where nothing is.
    """

    run: Run
    step: int
    steps: int | None
    loss: float | None
    left_s: float | None
    tokens_per_s: float | None
    trouble: str

    @property
    def urgency(self) -> tuple[int, float]:
        """Sorts: ended badly, in trouble, stopped, running, completed; in each the newest first."""
        state = self.run.state
        classes = [state in _BAD, state in ("running", "completed") and bool(self.trouble)]
        classes += [state not in ("running", "completed"), state == "running", True]
        return classes.index(True), -self.run.start.timestamp()


def look(run: Run) -> LiveRun:
    """The run as its logs show it now."""
    step, loss, step_time_s, tokens_per_s, damaged = 0, None, 0.0, None, ""
    try:
        if log := run.steps:
            step, loss = int(log.step[-1]), float(log.loss[-1])
            times_s = log.step_time_s[-_RECENT_STEPS:]
            if times_s.sum() > 0:
                step_time_s = float(times_s.mean())
                tokens_per_s = float(log.tokens[-_RECENT_STEPS:].sum() / times_s.sum())
    except LogError as error:
        damaged = str(error)
    per_epoch, epochs = run.record.steps_per_epoch, run.settings.get("num_epochs")
    steps = run.settings.get("max_steps") or (per_epoch and epochs and per_epoch * epochs) or None
    left_s = max(steps - step, 0) * step_time_s if steps and step_time_s and run.state == "running" else None
    return LiveRun(run, step, steps, loss, left_s, tokens_per_s, _trouble(run, loss, step_time_s) or damaged)


def _trouble(run: Run, loss: float | None, step_time_s: float) -> str:
    if run.state not in ("running", "completed"):
        return run.reason or run.state
    if loss is not None and not math.isfinite(loss):
        return f"loss is {loss}"
    written_ns = [run.files[name] for name in ("steps.csv", "train.out", "run.json") if name in run.files]
    silent_s = time.time() - max(written_ns, default=0) / 1e9
    if run.state == "running" and silent_s > max(_SILENT_S, 10 * step_time_s):
        return f"wrote nothing for {silent_s:.0f} s"
    return ""


def last_lines(path: Path, count: int) -> list[str]:
    """A log's last whole lines as a terminal shows them: of a progress bar its last state, no control codes.

    None of a file that cannot be read.
    """
    try:
        lines = read_plain(path).decode(errors="replace").split("\n")
    except LogError:
        return []
    lines = [line.rstrip("\r").rpartition("\r")[2] for line in lines if line.strip()]
    return [printable(_COLOUR.sub("", line)) for line in lines[-count:]]
