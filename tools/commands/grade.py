"""All participants' `check` as one table or page: a line per file, and why a file could not be checked."""

import argparse
import csv
import re
import sys
from collections import Counter
from pathlib import Path

from tools.commands.check import check_file
from tools.commands.options import add_logs_option, at_least_0, chosen_logs, chosen_runs
from tools.commands.runs import text_table
from tools.errors import InputError, NoRunsError
from tools.logs.run import Run
from tools.tables.forms import BLANK, VERDICTS, WRONG, Grade
from workshop.run_folder.plural import counted
from workshop.run_folder.printable import one_line, spreadsheet_text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE", help="a participant's filled-in tables")
    add_logs_option(parser)
    parser.add_argument("--tiny", action="store_true", help="the tables are about tiny runs (tiny.env)")
    parser.add_argument("--tolerance", type=at_least_0, default=2.0, metavar="PERCENT", help="default: 2")
    parser.add_argument("--format", choices=("text", "csv", "html"), default="text", help="html: a page")


def run(arguments: argparse.Namespace) -> int:
    runs = chosen_runs(arguments)
    files = list(dict.fromkeys(arguments.files))
    same = Counter(file.stem for file in files)  # as in group-1/my_results.md and group-2/my_results.md
    found = [_grade(file, file.stem if same[file.stem] == 1 else str(file), runs, arguments) for file in files]
    if arguments.format == "html":
        from tools.page import entries, grades  # Jinja, only where it is needed

        logs = entries.folder_names(chosen_logs(arguments))
        lead = f"{counted(len(found), 'file')}, compared with the runs in {logs}; "
        print(grades.render(found, lead + f"a figure is right within {arguments.tolerance:g} %."))
    else:
        rows = [["file", "tables", *VERDICTS, "problem"]]
        for one in found:
            counts = ["" if one.problem else str(one.count[verdict]) for verdict in VERDICTS]
            rows.append([one.file, one.tables, *counts, one.problem])
        if arguments.format == "csv":
            csv.writer(sys.stdout, lineterminator="\n").writerows(map(spreadsheet_text, row) for row in rows)
        else:
            print(text_table([[one_line(cell) for cell in row] for row in rows]))
    failed = (one.problem or one.count[WRONG] or one.count[BLANK] == one.count.total() for one in found)
    return int(any(failed))


def _grade(file: Path, name: str, runs: list[Run], arguments: argparse.Namespace) -> Grade:
    try:
        checked = check_file(file, _own_runs(file, runs), arguments, arguments.tiny, show=arguments.format == "html")
    except (InputError, NoRunsError) as error:
        text = one_line(" ".join(str(error).splitlines()[:2]))
        # The file is in a column of its own; what is left may begin with a line number.
        return Grade(str(file), name, [], re.sub(r"^(\d+):", r"line \1:", text.removeprefix(f"{file}:").strip()))
    return Grade(str(file), name, checked)


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
