"""Make a page of the runs that a browser opens from disk: their list, and each with its charts."""

import argparse
import sys
from pathlib import Path

from tools.commands.options import add_logs_option, chosen_logs, chosen_runs
from tools.logs.runs import default_logs, find_runs
from workshop.record.printable import counted


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_logs_option(parser)
    parser.add_argument(
        "--output",
        type=Path,
        metavar="DIR",
        help="the page's folder, replaced if it is an older page (default: page/ in the logs folder)",
    )


def run(arguments: argparse.Namespace) -> int:
    from tools.page import site  # Jinja, only where it is needed

    logs, output = chosen_logs(arguments), arguments.output or default_logs() / "page"
    if not arguments.output:
        default_logs().mkdir(parents=True, exist_ok=True)
    own = chosen_runs(arguments) if arguments.logs or logs[0].is_dir() else []
    made = site.build(own, find_runs(*sorted(site.REFERENCE.glob("*/"))), logs, output)
    count = sum(one.own for one in made)
    if not count:
        print(
            f"no runs of yours in {' or '.join(map(str, logs))} yet: the page shows the reference runs", file=sys.stderr
        )
    reference = counted(len(made) - count, "reference run")
    print(f"wrote {output}: {counted(count, 'run')} and {reference}")
    print(f"next: open {output / 'index.html'} in a browser")
    return 0
