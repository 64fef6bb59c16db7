"""Watch all running and recent runs, what is in trouble first, and what waits in the queue."""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from tools.commands.options import above_0, add_logs_option, chosen_logs
from tools.logs.live_run import LiveRun, look
from tools.logs.run import duration
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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_logs_option(parser)
    parser.add_argument("--once", action="store_true", help="print the view once and end; so it does in a pipe")
    parser.add_argument(
        "--recent", type=above_0, default=3, metavar="HOURS", help="also what ended within this time (default: 3)"
    )


def run(arguments: argparse.Namespace) -> int:
    logs = chosen_logs(arguments)
    find_runs(*logs)  # says which folder is not there
    recent = partial(recent_runs, logs, arguments.owner, arguments.recent * 3600, set())
    if arguments.once or not sys.__stdout__.isatty():
        columns, shown = shutil.get_terminal_size((_PIPE_COLUMNS, 50)).columns, recent()
        console = Console(file=sys.stdout, width=columns, color_system=None, force_terminal=False)
        console.print(view(shown, slurm.waiting(), len(shown)))
        return 0
    # rich's own sequences must reach the terminal; the view has no others.
    console = Console(file=sys.__stdout__)
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while True:  # until Ctrl-C
            most = max(1, console.height - _QUEUE_LINES - 4)
            live.update(view(recent(), slurm.waiting(), most), refresh=True)
            time.sleep(_EVERY_S)


def recent_runs(logs: Sequence[Path], owner: str | None, recent_s: float, left_out: set[Path]) -> list[LiveRun]:
    """The runs below logs folders that run or ended not long ago, read anew, by urgency.

    Args:
        owner: whose runs, None for all.
        recent_s: how long ago a run may have ended.
        left_out: folders that are not opened: of runs that ended before, or are somebody else's; they are added to it.
    """
    found = []
    for folder in sorted({path for one in logs for path in run_folders(one, 0)} - left_out):
        with suppress(OSError):  # deleted meanwhile
            run = read_run(folder)
            newest_s = max(run.files.values(), default=0) / 1e9
            ended_s = newest_s if run.runtime_s is None else run.start.timestamp() + run.runtime_s
            recent = run.state == "running" or time.time() - ended_s < recent_s
            if recent and owner in (None, run.owner):
                found.append(look(run))
            else:
                left_out.add(folder)
    return sorted(found, key=lambda one: one.urgency)


def view(shown: Sequence[LiveRun], waits: Sequence[str], most: int) -> Group:
    """At most `most` runs, and a few jobs that wait, for rich: no word of a log or a name is markup or an escape."""
    states = Counter(one.run.state for one in shown)
    count = ", ".join(f"{number} {state}" for state, number in states.items()) or "no run is running or recent"
    hidden = f", {len(shown) - most} of them not shown" if len(shown) > most else ""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name in _COLUMNS:  # rich cuts those that may wrap where the terminal is narrow
        table.add_column(name, justify="right" if name in _RIGHT else "left", no_wrap=name not in _CUT)
    for one in shown[:most]:
        cells = zip(_COLUMNS, map(one_line, _cells(one)), strict=True)
        styles = dict.fromkeys(("state", "trouble"), _COLOURS[one.urgency[0]])
        table.add_row(*(Text(text, styles.get(name, ""), no_wrap=True, overflow="crop") for name, text in cells))
    lines = [*waits[:_QUEUE_LINES], *([f"and {len(waits) - _QUEUE_LINES} more"] * (len(waits) > _QUEUE_LINES))]
    title = Text(f"{count}{hidden}; {len(waits)} waiting", style="bold", no_wrap=True)
    return Group(title, table, *(Text(f"waiting: {one_line(line)}", no_wrap=True) for line in lines))


def _cells(one: LiveRun) -> list[str]:
    run = one.run
    configuration = [run.configuration, run.model, f"x {run.world_size or '?'}"]
    return [
        run.state,
        run.owner,
        run.record.exercise or run.folder.parent.name,
        " ".join(filter(None, configuration)),
        f"{one.step}/{one.steps or '?'}",
        "-" if one.left_s is None else duration(one.left_s),
        "-" if one.tokens_per_s is None else f"{one.tokens_per_s:,.0f}",
        "-" if one.loss is None else f"{one.loss:.3f}",
        one.trouble,
    ]
