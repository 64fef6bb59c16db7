"""Print a command with what it prints of a tiny run, for the instructor's demo scripts and START.md."""

import argparse
import shlex

from tools.rehearsal import demos


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--resumed", action="store_true", help="what the run printed when it was resumed")
    parser.add_argument(
        "words",
        type=_words,
        metavar="COMMAND",
        help=f"in quotes: a line of instructor/demos/*.txt, or {', '.join(demos.TOOLS)} with its arguments",
    )


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected a shell line ({error})") from error


def run(arguments: argparse.Namespace) -> int:
    print(demos.shown(arguments.words, arguments.resumed))
    return 0
