"""Watch all running and recent runs, what is in trouble first, and what waits in the queue."""

import argparse
import math
import shutil
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from tools.commands.options import above_0, add_logs_option, chosen_logs
from tools.errors import LogError
from tools.logs.run import Run, duration
from tools.logs.runs import find_runs, read_run, run_folders
from tools.submit import slurm
from workshop.record.printable import one_line

_PIPE_COLUMNS = 200
_EVERY_S = 5
_COLUMNS = ("state", "owner", "exercise", "configuration", "step", "left", "tokens/s", "loss", "trouble")
_RIGHT = ("step", "left", "tokens/s", "loss")
_COLOURS = ("red", "yellow", "magenta", "green", "default")  # by LiveRun.urgency
_CUT = ("configuration", "trouble")
_QUEUE_LINES = 8
_SILENT_S = 120
_RECENT_STEPS = 20
_BAD = ("lost", "oom", "failed", "timeout", "unreadable")


@dataclass(frozen=True)
class LiveRun:
    """A run and its progress.

    Attributes:
        run: with run.json as it was at the look.
        step: the last one in steps.csv, 0 before the first; steps: of the whole training, None before it is known.
        loss: the last step's, None before the first.
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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_logs_option(parser)
    parser.add_argument("--once", action="store_true", help="print the view once and end; so it does in a pipe")
    recent = "also what ended within this time (default: 3)"
    parser.add_argument("--recent", type=above_0, default=3, metavar="HOURS", help=recent)


def main(arguments: argparse.Namespace) -> int:
    logs, left_out = chosen_logs(arguments), set[Path]()
    find_runs(*logs)  # says which folder is not there

    def now() -> Group:
        return view(recent_runs(logs, arguments.owner, arguments.recent * 3600, left_out), slurm.waiting())

    if arguments.once or not sys.__stdout__.isatty():
        columns = shutil.get_terminal_size((_PIPE_COLUMNS, 50)).columns
        Console(file=sys.stdout, width=columns, color_system=None, force_terminal=False).print(now())
        return 0
    # rich's own sequences must reach the terminal; the view has no others. It cuts what the screen has no room for.
    with Live(console=Console(file=sys.__stdout__), screen=True, auto_refresh=False) as live:
        while True:  # until Ctrl-C
            live.update(now(), refresh=True)
            time.sleep(_EVERY_S)


def recent_runs(logs: Sequence[Path], owner: str | None, recent_s: float, left_out: set[Path]) -> list[LiveRun]:
    """The runs below logs folders that run or ended not long ago, read anew, by urgency.

    Args:
        owner: the user whose runs are shown, None for all.
        recent_s: how long ago a run may have ended.
        left_out: folders that are not opened; runs that ended earlier or are another user's are added to it.
    """
    live = []
    for folder in sorted({path for one in logs for path in run_folders(one, 0)} - left_out):
        with suppress(OSError):  # deleted meanwhile
            run = read_run(folder)
            newest_s = max(run.files.values(), default=0) / 1e9
            ended_s = newest_s if run.runtime_s is None else run.start.timestamp() + run.runtime_s
            recent = run.state == "running" or time.time() - ended_s < recent_s
            if recent and owner in (None, run.owner):
                live.append(look(run))
            else:
                left_out.add(folder)
    return sorted(live, key=lambda one: one.urgency)


def view(shown: Sequence[LiveRun], waits: Sequence[str]) -> Group:
    """The runs, and a few jobs that wait, for rich: no word of a log or a name is markup or an escape."""
    states = Counter(live.run.state for live in shown)
    count = ", ".join(f"{number} {state}" for state, number in states.items()) or "no run is running or recent"
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name in _COLUMNS:  # rich cuts those that may wrap where the terminal is narrow
        table.add_column(name, justify="right" if name in _RIGHT else "left", no_wrap=name not in _CUT)
    for live in shown:
        cells = zip(_COLUMNS, map(one_line, _cells(live)), strict=True)
        styles = dict.fromkeys(("state", "trouble"), _COLOURS[live.urgency[0]])
        table.add_row(*(Text(text, styles.get(name, ""), no_wrap=True, overflow="crop") for name, text in cells))
    lines = [f"waiting: {one_line(line)}" for line in waits[:_QUEUE_LINES]]
    if len(waits) > _QUEUE_LINES:
        lines.append(f"and {len(waits) - _QUEUE_LINES} more")
    title = Text(f"{count}; {len(waits)} waiting", style="bold", no_wrap=True)
    return Group(title, *(Text(line, no_wrap=True) for line in lines), table)


def _cells(live: LiveRun) -> list[str]:
    run = live.run
    configuration = [run.configuration, run.model, f"x {run.world_size or '?'}"]
    return [
        run.state,
        run.owner,
        run.record.exercise or run.folder.parent.name,
        " ".join(filter(None, configuration)),
        f"{live.step}/{live.steps or '?'}",
        "-" if live.left_s is None else duration(live.left_s),
        "-" if live.tokens_per_s is None else f"{live.tokens_per_s:,.0f}",
        "-" if live.loss is None else f"{live.loss:.3f}",
        live.trouble,
    ]
