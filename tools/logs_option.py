"""--logs of the commands that compare with tables: runs of several folders may fill one."""

import argparse
from pathlib import Path

from tools.runs import default_logs


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
