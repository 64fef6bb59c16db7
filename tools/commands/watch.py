"""Watch all running and recent runs, what is in trouble first, and what waits in the queue."""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from tools.commands.options import above_0, add_logs_option, chosen_logs
from tools.logs.live_run import LiveRun, look
from tools.logs.run import Run, duration
from tools.logs.runs import find_runs, read_run, run_folders
from tools.submit import slurm
from workshop.run_folder.printable import one_line

_PIPE_COLUMNS = 200
_COLUMNS = ("state", "owner", "exercise", "configuration", "step", "left", "tokens/s", "loss", "trouble")
_RIGHT = ("step", "left", "tokens/s", "loss")
_COLOURS = ("red", "yellow", "magenta", "green", "default")  # by LiveRun.urgency
_SPARED = ("tokens/s", "exercise", "left", "loss")  # in a narrow terminal, in this order
_LEAST = {"configuration": 26, "trouble": 14}  # columns wide; what is longer is cut where there is no more room
_QUEUE_LINES = 8


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_logs_option(parser)
    parser.add_argument("--once", action="store_true", help="print the view once and end; so it does in a pipe")
    parser.add_argument("--every", type=above_0, default=5, metavar="S", help="look again after (default: 5)")
    parser.add_argument(
        "--recent", type=above_0, default=3, metavar="HOURS", help="also what ended within this time (default: 3)"
    )


def run(arguments: argparse.Namespace) -> int:
    runs = RecentRuns(chosen_logs(arguments), arguments.owner, arguments.recent * 3600)
    if arguments.once or not sys.__stdout__.isatty():
        columns = shutil.get_terminal_size((_PIPE_COLUMNS, 50)).columns
        console = Console(file=sys.stdout, width=columns, color_system=None, force_terminal=False)
        console.print(view(runs.look(), slurm.waiting(), columns))
        return 0
    # rich's own sequences must reach the terminal; the view has no others.
    console = Console(file=sys.__stdout__)
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while True:  # until Ctrl-C
            live.update(view(runs.look(), slurm.waiting(), console.width, console.height), refresh=True)
            time.sleep(arguments.every)


class RecentRuns:
    """The runs of some logs folders that run, or ended not long ago."""

    def __init__(self, logs: Sequence[Path], owner: str | None, recent_s: float) -> None:
        """`owner`: whose runs, None for all; `recent_s`: how long ago a run may have ended."""
        self._logs, self._owner, self._recent_s = logs, owner, recent_s
        self._left_out: set[Path] = set()  # ended before, or somebody else's: not opened again

    def look(self) -> list[LiveRun]:
        """All that are shown, read anew, by urgency. Raises InputError: a logs folder is not there."""
        found = []
        for logs in self._logs:
            if not logs.is_dir():
                find_runs(logs)  # says so
            for folder in set(run_folders(logs, 0)) - self._left_out:
                try:
                    run = read_run(folder)
                    if self._is_shown(run):
                        found.append(look(run))
                    else:
                        self._left_out.add(folder)
                except OSError:  # deleted meanwhile
                    continue
        return sorted(found, key=lambda one: one.urgency)

    def _is_shown(self, run: Run) -> bool:
        started_s, runtime_s = run.start.timestamp(), run.runtime_s
        newest_s = max(run.files.values(), default=0) / 1e9
        ended_s = newest_s if runtime_s is None else started_s + runtime_s
        recent = run.state == "running" or time.time() - ended_s < self._recent_s
        return recent and self._owner in (None, run.owner)


# ---- the view as text for rich: no word of a log or a name is markup, none can steer the terminal ----


def view(shown: Sequence[LiveRun], waits: Sequence[str], width: int, most_rows: int | None = None) -> Group:
    """Runs, then what waits in the queue, `width` columns wide; with `most_rows` in no more lines than that."""
    most_waits = _QUEUE_LINES if most_rows is None else min(_QUEUE_LINES, max(1, most_rows // 6))
    lines = [*waits[:most_waits], *([f"and {len(waits) - most_waits} more"] if len(waits) > most_waits else [])]
    rows = len(shown) if most_rows is None else max(1, most_rows - 4 - len(lines))
    states = Counter(one.run.state for one in shown)
    count = ", ".join(f"{number} {state}" for state, number in states.items()) or "no run is running or recent"
    hidden = f", {len(shown) - rows} of them not shown" if len(shown) > rows else ""
    parts = [Text(f"{count}{hidden}; {len(waits)} waiting", style="bold", no_wrap=True), _table(shown[:rows], width)]
    if lines:
        parts += [Text("waiting", style="bold"), *(Text(one_line(line), no_wrap=True) for line in lines)]
    return Group(*parts)


def _table(shown: Sequence[LiveRun], width: int) -> Table:
    """In a narrow terminal some columns are left out, and rich cuts configurations and troubles."""
    cells = [[*map(one_line, _cells(one))] for one in shown]
    longest = [max(map(len, column)) for column in zip(_COLUMNS, *cells, strict=True)]
    least = {name: min(size, _LEAST.get(name, size)) for name, size in zip(_COLUMNS, longest, strict=True)}
    for name in _SPARED:
        if sum(least.values()) + 2 * (len(least) - 1) > width:
            del least[name]
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name in least:
        table.add_column(name, justify="right" if name in _RIGHT else "left", no_wrap=name not in _LEAST)
    for row, one in zip(cells, shown, strict=True):
        styles = dict.fromkeys(("state", "trouble"), _COLOURS[one.urgency[0]])
        texts = [(text, name) for text, name in zip(row, _COLUMNS, strict=True) if name in least]
        table.add_row(*(Text(text, styles.get(name, ""), no_wrap=True, overflow="crop") for text, name in texts))
    return table


def _cells(one: LiveRun) -> list[str]:
    run = one.run
    configuration = [run.record.config or run.rung, run.model, f"x {run.world_size or '?'}"]
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
