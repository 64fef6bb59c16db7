"""Compare a participant's filled-in tables with the logs, cell by cell; those of several people in a line per file.

A figure is right within the tolerance, or half a unit of the last digit that `fill` prints if that is more.
"""

import argparse
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from tools.commands.fill import fill_all
from tools.commands.options import above_0, add_logs_option, chosen_logs, chosen_runs, print_csv, same_runs
from tools.commands.runs import text_table
from tools.errors import InputError, NoRunsError
from tools.logs.figures import OF_ONE_RUN, value_of
from tools.logs.run import Run
from tools.logs.sources import evaluation_speeds
from tools.plan import choice
from tools.tables.fill import NOT_MEASURED, Cell, FilledTable, sources
from tools.tables.forms import BLANK, RIGHT, VERDICTS, WRONG, Checked, Judgement, counts, prediction_lines, read_cell
from tools.tables.markdown import BY_HAND, TINY_LINE, Grid, normalised, read_text, tables_in
from tools.tables.table import table_definitions
from workshop.record.printable import counted, one_line

_OTHER_MARKS = str.maketrans(",.", ".,")
_MISSED = 10  # cells in the list of those that most people got wrong


def add_arguments(parser: argparse.ArgumentParser) -> None:
    form = "a Markdown file with a filled-in copy of the README's tables"
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE", help=form)
    add_logs_option(parser)
    parser.add_argument("--tolerance", type=above_0, default=2.0, metavar="PERCENT", help="default: 2")
    parser.add_argument("--show", action="store_true", help="print the expected values too; of one file")
    lines = "csv: a line per file, also for one"
    parser.add_argument("--format", choices=("text", "csv"), default="text", help=lines)


def main(arguments: argparse.Namespace) -> int:
    runs, files = chosen_runs(arguments), list(dict.fromkeys(arguments.files))
    if len(files) == 1 and arguments.format == "text":
        return _print_file(files[0], runs, arguments)
    if arguments.show:
        raise InputError("--show: prints the cells of one file; expected one, and no --format csv")
    return _print_files(files, runs, arguments)


def _print_file(file: Path, runs: list[Run], arguments: argparse.Namespace) -> int:
    """Print what there is to say about each cell; gives the exit code."""
    text = read_text(file)
    checked = check_form(file, text, runs, arguments)
    for filled in [table.filled for table in checked if table.cells]:
        source = filled.source or sources([filled]).removeprefix("From ")
        print(f"Table {filled.table.number}: compared with {source}")
        for note in filled.notes:
            print(f"  {note}")
    for table in checked:
        _print_cells(file, table.cells, arguments.show)
    for line in [*prediction_lines(checked, text, runs, arguments.show), *choice.prediction_lines(checked)]:
        print(line)
    count = counts(checked)
    print(f"{counted(count.total(), 'cell')}: " + ", ".join(f"{count[verdict]} {verdict}" for verdict in VERDICTS))
    print(f"tolerance: {arguments.tolerance:g} %, or half a unit of the last digit that fill prints if that is more")
    return int(_is_wrong(count))


def _is_wrong(count: Counter[str]) -> bool:
    """Whether a file with these verdicts has a wrong cell, or none that is filled in."""
    return bool(count[WRONG] or count[BLANK] == count.total())


def _print_files(files: list[Path], runs: list[Run], arguments: argparse.Namespace) -> int:
    """Print a line per file, and which cells most people got wrong; gives the exit code."""
    rows, missed, failed = [["file", "tables", *VERDICTS, "problem"]], Counter(), False
    for file in files:
        checked, problem = _checked(file, runs, arguments)
        count = counts(checked)
        numbers = " ".join(table.copy.number for table in checked)
        rows.append([str(file), numbers, *("" if problem else str(count[one]) for one in VERDICTS), problem])
        cells = (cell for table in checked for cell in table.cells if cell.verdict == WRONG)
        missed.update((cell.table, cell.row, cell.column) for cell in cells)
        failed = failed or bool(problem) or _is_wrong(count)
    if arguments.format == "csv":
        print_csv(rows)
    else:
        print(text_table([[one_line(cell) for cell in row] for row in rows]))
        for (table, row, column), people in missed.most_common(_MISSED):
            print(f"wrong in {counted(people, 'file')}: Table {table}, {row}, {column}")
    return int(failed)


def _checked(file: Path, runs: list[Run], arguments: argparse.Namespace) -> tuple[list[Checked], str]:
    """The file's tables with the judgement of their cells, or why it could not be checked."""
    try:
        return check_form(file, read_text(file), _runs_of_participant(file, runs), arguments), ""
    except (InputError, NoRunsError) as error:
        text = one_line(" ".join(str(error).splitlines()[:2]))
        # The file is in a column of its own; what is left may begin with a line number.
        return [], re.sub(r"^(\d+):", r"line \1:", text.removeprefix(f"{file}:").strip())


def _runs_of_participant(file: Path, runs: list[Run]) -> list[Run]:
    """Of several people's runs those of the user that the file is named after.

    Raises:
        InputError: there are several people's runs, and none is of a user of the file's name.
    """
    owners = sorted({run.owner for run in runs})
    if len(owners) > 1 and file.stem not in owners:
        names = ", ".join(f"{name}.md" for name in owners)
        raise InputError(f"named after no owner of runs; expected one of {names}")
    return [run for run in runs if len(owners) == 1 or run.owner == file.stem]


def check_form(file: Path, text: str, runs: list[Run], arguments: argparse.Namespace) -> list[Checked]:
    """The tables of a form with this text, each with the judgement of its cells.

    Args:
        arguments: the tolerance in percent, and where the runs are from.

    Raises:
        InputError: it has no tables, or others than the READMEs.
        NoRunsError: no run is about its tables.
    """
    copies = [table for table in tables_in(text, file) if table.number and not table.generated]
    if not copies:
        raise InputError(
            f"{file}: no tables found but in generated blocks; keep each caption (**Table 1** *Title*) above its table"
        )
    of_choice = choice.definitions()
    known = table_definitions(TINY_LINE in text) | of_choice
    definitions = [_definition(copy, known) for copy in copies]
    if all(copy.number in of_choice for copy in copies):
        tables = choice.filled(copies, text, runs)
    else:
        nothing = f"no run that the tables of {file} are about:"
        command = f"python -m tools check {file}{same_runs(arguments)}"
        tables = fill_all(definitions, runs, chosen_logs(arguments), nothing, command)
    marked = any(filled.table.by_hand for filled in tables)
    return [
        Checked(copy, filled, compare(copy, filled, arguments.tolerance, marked, runs))
        for copy, filled in zip(copies, tables, strict=True)
    ]


def _print_cells(file: Path, cells: list[Judgement], show: bool) -> None:
    """What there is to say about a table's cells, with `show` what is expected; of a table without any, one line."""
    if cells and all(cell.verdict == BLANK for cell in cells):
        print(f"{file}:{cells[0].line}: Table {cells[0].table}: not filled in")
        return
    for cell in cells:
        if cell.text:
            expected = f", expected {cell.expected}" if show and cell.verdict != BLANK else ""
            print(f"{file}:{cell.line}: Table {cell.table}, {cell.row}, {cell.column}: {cell.text}{expected}")


def _definition(copy: Grid, known: dict[str, Grid]) -> Grid:
    """The blank table a copy belongs to, with its columns or some of them.

    Raises:
        InputError: no README has a table of that number, or its columns are others.
    """
    place = f"{copy.path}:{copy.header_line}"
    if copy.number not in known:
        numbers = ", ".join(known) or "no blank tables"
        raise InputError(f"{place}: unknown Table {copy.number}; the READMEs have {numbers}")
    definition = known[copy.number]
    own, right = (list(map(normalised, table.header)) for table in (copy, definition))
    labels = definition.label_columns
    if own[:labels] != right[:labels] or not set(own) <= set(right):
        header = " | ".join(definition.header)
        blank = f"python -m tools fill {definition.path.parent.name} --blank{' --tiny' if definition.tiny else ''}"
        raise InputError(
            f"{place}: the columns of Table {copy.number} are not those of {definition.path}: {header} (`{blank}`)"
        )
    return definition


def compare(copy: Grid, filled: FilledTable, tolerance: float, marked: bool, runs: list[Run]) -> list[Judgement]:
    """A judgement of each of the table's cells, but for those that are blank and about which the logs say nothing.

    Args:
        marked: of the blank cells only those count that are to be filled in by hand.
        runs: also those that the table does not show.

    Raises:
        InputError: a row is not in the definition or is twice in the copy.
    """
    labels, tolerance = filled.table.label_columns, max(tolerance, filled.tolerance_percent)
    written: dict[tuple[str, ...], tuple[int, dict[str, str]]] = {}
    columns = list(map(normalised, copy.header))
    known = [tuple(map(normalised, row[:labels])) for row in filled.table.rows]
    for line, row in zip(copy.lines, copy.rows, strict=True):
        key = tuple(map(normalised, row[:labels]))
        if key not in known or key in written:
            problem = "is there twice" if key in written else f"is not in Table {copy.number} of {filled.table.path}"
            raise InputError(f"{copy.path}:{line}: the row {' / '.join(row[:labels])!r} {problem}")
        written[key] = line, dict(zip(columns, row, strict=True))
    judged = []
    for key, row in zip(known, filled.table.rows, strict=True):
        label, (line, own) = filled.table.label(row), written.get(key, (copy.header_line, {}))
        for mark, column in zip(row, filled.table.header, strict=True):
            cell = filled.cells.get((label, column))
            found = own.get(normalised(column), "")
            found = "" if found == mark else found  # a form's mark, not a participant's
            asked = mark == BY_HAND or not marked
            # Asked for is a figure, or how a run ended; not that there is no log or no run.
            if cell and (found or (asked and (cell.value is not None or not cell.text.startswith(("no ", "not "))))):
                place = copy.number, line, label, column
                judged.append(Judgement(*place, *judge(found, cell, tolerance, runs), cell.text))
    return judged


def judge(found: str, cell: Cell, tolerance: float, runs: list[Run]) -> tuple[str, str]:
    """The verdict on a participant's cell, and what to say about it; `tolerance` in percent.

    Also right is what another completed run of the same settings printed, which is then named.
    """
    if normalised(found) in (normalised(cell.text), normalised(cell.text.split(" (")[0])):
        return RIGHT, ""
    try:
        own = read_cell(found, cell.figure)
    except InputError as problem:
        return WRONG, f"found {found!r}: {problem}"
    if own is None:  # "-" is right where the logs have nothing either
        return (RIGHT, "") if found and cell.value is None else (BLANK, BLANK)
    if cell.text == NOT_MEASURED:
        return WRONG, f"found {found}: the logs have no such run"
    if isinstance(own, str) or cell.value is None or isinstance(cell.value, bool):
        return WRONG, f"found {found}: the logs say otherwise"
    rounding = 0.5 * 10.0 ** -cell.figure.digits(cell.value)
    allowed = max(abs(cell.value) * tolerance / 100, rounding)
    if abs(own - cell.value) <= allowed * (1 + 1e-9):  # the rounding of the decimal fractions themselves
        return RIGHT, ""
    shown = [_settings(run) for run in cell.runs]
    for run in [*cell.runs, *(run for run in runs if run.state == "completed" and _settings(run) in shown)]:
        for value, what in _figures(run, cell.figure.name):
            if value is not None and abs(own - value) <= max(abs(value) * tolerance / 100, rounding):
                return RIGHT, f"found {found}: {what}"
    if found.translate(_OTHER_MARKS) != found:
        with suppress(InputError):
            other = read_cell(found.translate(_OTHER_MARKS), cell.figure)
            if isinstance(other, float) and abs(other - cell.value) <= allowed:
                return WRONG, f"found {found}: read as {own:g}; write a point before decimals, a comma before thousands"
    return WRONG, f"found {found}: too {'large' if own > cell.value else 'small'}"


def _figures(run: Run, name: str) -> Iterator[tuple[float | None, str]]:
    """A run's figure and others that it printed under this name, each with what to say about it."""
    if name in OF_ONE_RUN:
        yield value_of(run, name), f"right for {run.folder}"
    if name in ("samples_per_second", "steps_per_second"):
        shown = "fill shows the speed without evaluation and saving, which compares strategies"
        yield value_of(run, f"trainer_{name}"), f"the Trainer's train_{name}, over the whole runtime; {shown}"
    if name == "eval_samples_per_second":
        what = f"the speed of one evaluation of {run.folder}; fill shows their mean"
        yield from ((speed, what) for speed in evaluation_speeds(run))


def _settings(run: Run) -> tuple:
    return run.record.exercise, run.record.config, run.world_size, run.record.nodes, run.settings
