"""All participants' `check` as one table: a line per file, and which cells most people got wrong."""

import argparse
import re
from collections import Counter
from pathlib import Path

from tools.commands.check import check_file
from tools.commands.options import above_0, add_logs_option, chosen_runs, print_csv
from tools.commands.runs import text_table
from tools.errors import InputError, NoRunsError
from tools.logs.run import Run
from tools.tables.forms import BLANK, VERDICTS, WRONG, Checked, counts
from workshop.run_folder.plural import counted
from workshop.run_folder.printable import one_line

_MISSED = 10  # cells in the list of those that most people got wrong


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE", help="a participant's filled-in tables")
    add_logs_option(parser)
    parser.add_argument("--tolerance", type=above_0, default=2.0, metavar="PERCENT", help="default: 2")
    parser.add_argument("--format", choices=("text", "csv"), default="text")


def run(arguments: argparse.Namespace) -> int:
    runs = chosen_runs(arguments)
    rows, missed, failed = [["file", "tables", *VERDICTS, "problem"]], Counter(), False
    for file in dict.fromkeys(arguments.files):
        checked, problem = _checked(file, runs, arguments)
        count = counts(checked)
        numbers = " ".join(table.table.number for table, _ in checked)
        rows.append([str(file), numbers, *("" if problem else str(count[one]) for one in VERDICTS), problem])
        cells = (cell for _, judged in checked for cell in judged if cell.verdict == WRONG)
        missed.update((cell.table, cell.row, cell.column) for cell in cells)
        failed = failed or bool(problem or count[WRONG] or count[BLANK] == count.total())
    if arguments.format == "csv":
        print_csv(rows)
    else:
        print(text_table([[one_line(cell) for cell in row] for row in rows]))
        for (table, row, column), people in missed.most_common(_MISSED):
            print(f"wrong in {counted(people, 'file')}: Table {table}, {row}, {column}")
    return int(failed)


def _checked(file: Path, runs: list[Run], arguments: argparse.Namespace) -> tuple[Checked, str]:
    """The file's tables with the judgement of their cells, or why it could not be checked."""
    try:
        return check_file(file, _own_runs(file, runs), arguments), ""
    except (InputError, NoRunsError) as error:
        text = one_line(" ".join(str(error).splitlines()[:2]))
        # The file is in a column of its own; what is left may begin with a line number.
        return [], re.sub(r"^(\d+):", r"line \1:", text.removeprefix(f"{file}:").strip())


def _own_runs(file: Path, runs: list[Run]) -> list[Run]:
    """The participant's: of several people's runs those of the user that the file is named after.

    Raises:
        InputError: there are several people's runs, and none is of a user of the file's name.
    """
    owners = sorted({run.owner for run in runs})
    if len(owners) > 1 and file.stem not in owners:
        names = ", ".join(f"{name}.md" for name in owners)
        raise InputError(f"named after no owner of runs; expected one of {names}")
    return [run for run in runs if len(owners) == 1 or run.owner == file.stem]
