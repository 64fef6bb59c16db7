"""--logs of the commands that read runs: those of several folders may be asked for together."""

import argparse
from pathlib import Path

from tools.logs.runs import default_logs


def add_logs_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--logs",
        type=Path,
        action="append",
        help="folder of the runs (default: $LOG_DIR, else logs/); may be repeated: the runs of all of them",
    )


def chosen_logs(arguments: argparse.Namespace) -> list[Path]:
    """The folders asked for, or the default one."""
    return arguments.logs or [default_logs()]


def as_options(logs: list[Path]) -> str:
    """For the next command that a command recommends."""
    return "".join(f" --logs {folder}" for folder in logs)
