"""Watch all running and recent runs, what is in trouble first, and what waits in the queue."""

import argparse
import os
import select
import shutil
import sys
import termios
import time
import tty
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tools.commands.options import above_0, add_logs_option, at_least_0, chosen_logs
from tools.logs.live_run import LiveRun, last_lines, look
from tools.logs.run import Run
from tools.logs.runs import find_runs, read_run, run_folders
from tools.submit import slurm

_FIND_EVERY_S = 10
_PIPE_COLUMNS = 200


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_logs_option(parser)
    parser.add_argument("--once", action="store_true", help="print the view once and end; so it does in a pipe")
    parser.add_argument("--every", type=above_0, default=2, metavar="S", help="look again after (default: 2)")
    parser.add_argument(
        "--recent", type=at_least_0, default=3, metavar="HOURS", help="also what ended within this time (default: 3)"
    )


def run(arguments: argparse.Namespace) -> int:
    from rich.console import Console

    from tools.watch import screen

    folders = Folders(chosen_logs(arguments), arguments.owner, arguments.recent * 3600)
    folders.find()
    if arguments.once or not (sys.stdin.isatty() and sys.__stdout__.isatty()):
        columns = shutil.get_terminal_size((_PIPE_COLUMNS, 50)).columns
        console = Console(file=sys.stdout, width=columns, color_system=None, force_terminal=False)
        console.print(screen.view(folders.look(), slurm.waiting(), columns))
        return 0
    # rich's own sequences must reach the terminal; the view has no others.
    _live(Console(file=sys.__stdout__), folders, arguments.every)
    return 0


class Folders:
    """The runs of some logs folders that run, or ended not long ago."""

    def __init__(self, logs: Sequence[Path], owner: str | None, recent_s: float) -> None:
        """`owner`: whose runs, None for all; `recent_s`: how long ago a run may have ended."""
        self._logs, self._owner, self._recent_s = logs, owner, recent_s
        self._known: set[Path] = set()
        self._left_out: set[Path] = set()  # ended before, or somebody else's: not opened again

    def find(self) -> None:
        """Look for new run folders.

        Raises:
            InputError: a logs folder is not there.
        """
        for logs in self._logs:
            if not logs.is_dir():
                find_runs(logs)  # says so
            self._known |= set(run_folders(logs, 0))

    def look(self) -> list[LiveRun]:
        """All that are shown, read anew, by urgency."""
        found = []
        for folder in sorted(self._known - self._left_out):
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
        newest_s = max((time_ns for _, time_ns in run.files.values()), default=0) / 1e9
        ended_s = newest_s if runtime_s is None else started_s + runtime_s
        recent = run.state == "running" or time.time() - ended_s < self._recent_s
        return recent and self._owner in (None, run.owner)


def _live(console: object, folders: Folders, every_s: float) -> None:
    from rich.live import Live
    from rich.text import Text

    from tools.watch import screen

    opened: Path | None = None
    found_s, waiting = 0.0, []
    with _keys(), Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            if time.monotonic() - found_s > _FIND_EVERY_S:
                folders.find()
                waiting, found_s = slurm.waiting(), time.monotonic()
            shown = folders.look()
            if opened:
                lines = last_lines(opened / "train.out", console.height - 2)
                live.update(Text("\n".join([f"{opened}  (any key: back)", *lines]), no_wrap=True), refresh=True)
            else:
                live.update(screen.view(shown, waiting, console.width, console.height), refresh=True)
            key = _pressed(every_s)
            if key == "q":
                return
            place = screen.KEYS.find(key) if key else -1
            if key:
                opened = shown[place].run.folder if opened is None and 0 <= place < len(shown) else None


@contextmanager
def _keys() -> Iterator[None]:
    """Keys arrive one by one, without Enter; Ctrl-C ends the view."""
    before = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin)
    try:
        yield
    except KeyboardInterrupt:
        pass
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _pressed(within_s: float) -> str:
    ready, _, _ = select.select([sys.stdin], [], [], within_s)
    return os.read(sys.stdin.fileno(), 16).decode(errors="replace")[:1] if ready else ""
