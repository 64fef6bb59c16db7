"""A run's progress and problems, from the last lines of its logs."""

from __future__ import annotations

import contextlib
import math
import os
import re
import time
from dataclasses import dataclass
from pathlib import Path

from tools.errors import LogError
from tools.logs.run import Run
from workshop.run_folder import csv_log
from workshop.run_folder.printable import printable
from workshop.run_folder.safe_open import open_plain

_SILENT_S = 120
_RECENT_STEPS, _STEPS_BYTES = 20, 4 << 10
_MOST_STEPS = 10**9  # more is no training
_LOG_BYTES, _LONGEST_LINE = 64 << 10, 300
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
    """The run as the ends of its logs show it now."""
    last = _last_steps(run.folder / "steps.csv")
    step, loss = (int(last[-1]["step"]), last[-1]["loss"]) if last else (0, None)
    total_s = sum(one["step_time_s"] for one in last)
    step_time_s = total_s / len(last) if total_s > 0 else None
    steps = _all_steps(run)
    left = steps and step_time_s and run.state == "running"
    return LiveRun(
        run,
        step,
        steps,
        loss,
        left_s=max(steps - step, 0) * step_time_s if left else None,
        tokens_per_s=sum(one["tokens"] for one in last) / total_s if step_time_s else None,
        trouble=_trouble(run, loss, step_time_s or 0),
    )


def _all_steps(run: Run) -> int | None:
    per_epoch = min(run.record.steps_per_epoch or 0, _MOST_STEPS)
    steps = run.settings.get("max_steps") or per_epoch * (run.settings.get("num_epochs") or 0)
    return math.ceil(steps) if 0 < steps < _MOST_STEPS else None


def _trouble(run: Run, loss: float | None, step_time_s: float) -> str:
    if run.state not in ("running", "completed"):
        reason = re.sub(r"^train\.out:\d+: ", "", run.record.reason or "")
        return run.problem or run.record.cause or reason or run.state
    if loss is not None and not math.isfinite(loss):
        return f"loss is {loss}"
    written_ns = [run.files[name] for name in ("steps.csv", "train.out", "run.json") if name in run.files]
    silent_s = time.time() - max(written_ns, default=0) / 1e9
    if run.state == "running" and silent_s > max(_SILENT_S, 10 * step_time_s):
        return f"wrote nothing for {silent_s:.0f} s"
    return ""


def _last_steps(path: Path) -> list[dict[str, float]]:
    """The last steps; a line that is cut or damaged costs itself."""
    (header, lines), found = _ends(path, _STEPS_BYTES), []
    for line in lines[:-1]:
        with contextlib.suppress(LogError):
            found += csv_log.step_numbers(path, csv_log.step_rows(path, [line], header))
    return found[-_RECENT_STEPS:]


def _ends(path: Path, most_bytes: int) -> tuple[str, list[str]]:
    """A file's first line, and the lines within its last bytes, without one that is cut at its beginning.

    The last one is not ended yet. Of a file that is no plain file or cannot be read there are none.
    """
    try:
        with os.fdopen(open_plain(path), "rb", buffering=0) as file:
            header = file.read(1024).partition(b"\n")[0].decode(errors="replace").strip()
            start = file.seek(max(0, os.fstat(file.fileno()).st_size - most_bytes))
            return header, file.read(most_bytes).decode(errors="replace").split("\n")[start > 0 :]
    except OSError:
        return "", []


def last_lines(path: Path, count: int) -> list[str]:
    """A log's last lines as a terminal shows them: the last state of a progress bar, no colours, no control codes."""
    lines = [line.rstrip("\r").rpartition("\r")[2] for line in _ends(path, _LOG_BYTES)[1]]
    shown = [printable(_COLOUR.sub("", line)) for line in lines if line.strip()][-count:]
    return [line if len(line) <= _LONGEST_LINE else line[: _LONGEST_LINE - 1] + "…" for line in shown]
