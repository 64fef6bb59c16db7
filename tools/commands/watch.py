"""Watch all running and recent runs, what is in trouble first, and what waits in the queue."""

import argparse
import os
import select
import shutil
import sys
import termios
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tools.commands.options import above_0, add_logs_option, at_least_0, chosen_logs

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

    from tools.watch import queue, screen
    from tools.watch.folders import Folders

    folders = Folders(chosen_logs(arguments), arguments.owner, arguments.recent * 3600)
    folders.find()
    if arguments.once or not (sys.stdin.isatty() and sys.__stdout__.isatty()):
        columns = shutil.get_terminal_size((_PIPE_COLUMNS, 50)).columns
        console = Console(file=sys.stdout, width=columns, color_system=None, force_terminal=False)
        console.print(screen.view(folders.look(), queue.waiting(), columns))
        return 0
    # rich's own sequences must reach the terminal; the view has no others.
    _live(Console(file=sys.__stdout__), folders, arguments.every)
    return 0


def _live(console: object, folders: object, every_s: float) -> None:
    from rich.live import Live
    from rich.text import Text

    from tools.logs.live_run import last_lines
    from tools.watch import queue, screen

    opened: Path | None = None
    found_s, waiting = 0.0, []
    with _keys(), Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            if time.monotonic() - found_s > _FIND_EVERY_S:
                folders.find()
                waiting, found_s = queue.waiting(), time.monotonic()
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
