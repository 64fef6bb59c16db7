"""Print a command with what it prints of a tiny run, for the instructor's demo scripts and START.md."""

import argparse
import shlex

from tools.rehearsal import demos


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--resumed", action="store_true", help="what the run printed when it was resumed")
    parser.add_argument(
        "words",
        type=shlex.split,
        metavar="COMMAND",
        help=f"in quotes: a line of instructor/demos/*.txt, or {', '.join(demos.TOOLS)} with its arguments",
    )


def run(arguments: argparse.Namespace) -> int:
    print(demos.shown(arguments.words, arguments.resumed))
    return 0
