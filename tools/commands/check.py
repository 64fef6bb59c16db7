"""Compare a participant's tables with the logs, cell by cell, or several people's with a line per file.

A figure is right within the tolerance, or half a unit of the last digit that `fill` prints if that is more.
"""

import argparse
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from tools.commands import choice
from tools.commands.fill import none_about
from tools.commands.options import add_logs_option, chosen_logs, chosen_runs, print_csv, same_runs
from tools.errors import InputError, NoRunsError
from tools.logs.figures import OF_ONE_RUN, value_of
from tools.logs.run import Run
from tools.logs.sources import evaluation_speeds
from tools.tables.fill import Cell, FilledTable, fill, sources
from tools.tables.forms import (
    BLANK,
    RIGHT,
    VERDICTS,
    WRONG,
    Checked,
    Judgement,
    counts,
    prediction_lines,
    read_cell,
    typed_predictions,
)
from tools.tables.markdown import BY_HAND, TINY_LINE, Grid, Place, normalised, read_text, tables_in, text_table
from tools.tables.table import table_definitions
from workshop.record.printable import counted, one_line

_OTHER_MARKS = str.maketrans(",.", ".,")
_MISSED = 10  # cells in the list of those that most people got wrong


def add_arguments(parser: argparse.ArgumentParser) -> None:
    form = "a Markdown file with a filled-in copy of the README's tables"
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE", help=form)
    add_logs_option(parser)
    parser.add_argument("--tolerance", type=float, default=2.0, metavar="PERCENT", help="default: 2")
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
    """Print a line per cell with a remark; gives the exit code."""
    text, show = read_text(file), arguments.show
    checked = check_form(file, text, runs, arguments)
    for filled in [table.filled for table in checked if table.cells]:
        source = filled.source or (sources([filled]).removeprefix("From ") if filled.runs else "")
        compared = [f"compared with {source}"] if source else []
        if told := [*compared, *filled.notes]:
            print(f"Table {filled.table.number}: " + "\n  ".join(told))
    for table in checked:
        if table.cells and all(judged.verdict == BLANK for judged in table.cells):
            print(f"{file}:{table.cells[0].line}: Table {table.copy.number}: not filled in")
            continue
        for judged in [judged for judged in table.cells if judged.text]:
            expected = f", expected {judged.expected}" if show and judged.verdict != BLANK else ""
            print(f"{file}:{judged.line}: {judged.place}: {judged.text}{expected}")
    for line in _about_predictions(checked, text, runs, show):
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
        try:
            checked = check_form(file, read_text(file), _runs_of_participant(file, runs), arguments)
        except (InputError, NoRunsError) as error:
            rows.append([str(file), *[""] * 4, one_line(" ".join(str(error).splitlines()[:2]))])
            failed = True
            continue
        count = counts(checked)
        numbers = " ".join(table.copy.number for table in checked)
        rows.append([str(file), numbers, *(str(count[verdict]) for verdict in VERDICTS), ""])
        missed.update(judged.place for table in checked for judged in table.cells if judged.verdict == WRONG)
        failed = failed or _is_wrong(count)
    if arguments.format == "csv":
        print_csv(rows)
    else:
        print(text_table([[one_line(cell) for cell in row] for row in rows]))
        for place, people in missed.most_common(_MISSED):
            print(f"wrong in {counted(people, 'file')}: {place}")
    return int(failed)


def _runs_of_participant(file: Path, runs: list[Run]) -> list[Run]:
    """The runs of the user that the file is named after, or all runs if they are of one user.

    Raises:
        InputError: there are several people's runs, and none is of a user of the file's name.
    """
    owners = sorted({run.owner for run in runs})
    if len(owners) > 1 and file.stem not in owners:
        names = ", ".join(f"{name}.md" for name in owners)
        raise InputError(f"named after no owner of runs; expected one of {names}")
    return [run for run in runs if len(owners) == 1 or run.owner == file.stem]


def check_form(file: Path, text: str, runs: list[Run], arguments: argparse.Namespace) -> list[Checked]:
    """Judge each cell of a form's tables.

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
    chosen = [copy for copy in copies if copy.number in of_choice]
    by_planner = {table.table.number: table for table in (choice.filled(chosen, text, runs) if chosen else ())}
    tables = [by_planner.get(table.number) or fill(table, runs) for table in definitions]
    if not by_planner and not any(table.runs for table in tables):
        nothing = f"no run that the tables of {file} are about:"
        command = f"python -m tools check {file}{same_runs(arguments)}"
        raise none_about(definitions, runs, chosen_logs(arguments), nothing, command)
    marked = any(filled.table.by_hand for filled in tables)
    return [
        Checked(copy, filled, compare(copy, filled, arguments.tolerance, marked, runs))
        for copy, filled in zip(copies, tables, strict=True)
    ]


def _about_predictions(checked: list[Checked], text: str, runs: list[Run], show: bool) -> Iterator[str]:
    """The lines about a form's predictions.

    Args:
        runs: which fill the exercise's tables that the form lacks.
        show: also figures of cells that the participant has not read, or read wrongly.
    """
    of_choice = choice.definitions()
    predicted = [*choice.predictions([table.copy for table in checked if table.copy.number in of_choice])]
    for folder in {table.filled.table.path.parent for table in checked if table.copy.number not in of_choice}:
        predicted += typed_predictions(text, folder)
    tables = {table.copy.number: table.filled for table in checked}
    missing = {number for _, _, places in predicted for number, *_ in places} - tables.keys()
    definitions = table_definitions(TINY_LINE in text) if missing else {}
    tables |= {number: fill(definitions[number], runs) for number in missing}
    cells = {(number, *place): cell for number, table in tables.items() for place, cell in table.cells.items()}
    unread = {judged.cell for table in checked for judged in table.cells if judged.verdict != RIGHT and not show}
    yield from prediction_lines(predicted, cells, unread)


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
    written, right = (list(map(normalised, table.header)) for table in (copy, definition))
    labels = definition.label_columns
    if written[:labels] != right[:labels] or not set(written) <= set(right):
        header = " | ".join(definition.header)
        blank = f"python -m tools fill {definition.path.parent.name} --blank{' --tiny' if definition.tiny else ''}"
        raise InputError(
            f"{place}: the columns of Table {copy.number} are not those of {definition.path}: {header} (`{blank}`)"
        )
    return definition


def compare(copy: Grid, filled: FilledTable, tolerance: float, marked: bool, runs: list[Run]) -> list[Judgement]:
    """Judge each cell of the table, except blank cells that the logs cannot fill.

    Args:
        marked: count a blank cell only if it is to be filled in by hand.
        runs: all runs, also those that no cell shows.

    Raises:
        InputError: a row is not in the definition or is twice in the copy.
    """
    labels, tolerance = filled.table.label_columns, max(tolerance, filled.tolerance_percent)
    lines: dict[Place, int] = {}
    known = [tuple(map(normalised, row[:labels])) for row in filled.table.rows]
    for line, row in zip(copy.lines, copy.rows, strict=True):
        key = tuple(map(normalised, row[:labels]))
        if key not in known or key in lines:
            problem = "is there twice" if key in lines else f"is not in Table {copy.number} of {filled.table.path}"
            raise InputError(f"{copy.path}:{line}: the row {' / '.join(row[:labels])!r} {problem}")
        lines[key] = line
    copy = replace(copy, definition=filled.table.definition)
    written = {tuple(map(normalised, place)): text for place, text in copy.texts.items()}
    judged = []
    for place, mark in filled.table.texts.items():
        cell, key = filled.cells.get(place), tuple(map(normalised, place))
        typed = written.get(key, "")
        typed = "" if typed == mark else typed  # a form's mark, not a participant's
        asked = mark == BY_HAND or not marked
        # Asked for is a figure, or how a run ended; not that there is no log or no run.
        if cell and (typed or (asked and not _is_missing(cell))):
            line = lines.get(key[:-1], copy.header_line)
            judged.append(Judgement((copy.number, *place), line, *judge(typed, cell, tolerance, runs), cell.text))
    return judged


def _is_missing(cell: Cell) -> bool:
    """Whether there is no run, or the run has no such figure."""
    return cell.value is None and cell.text.startswith(("no ", "not "))


def judge(typed: str, cell: Cell, tolerance: float, runs: list[Run]) -> tuple[str, str]:
    """The verdict on a participant's cell, and what to say about it; `tolerance` in percent.

    Also right is what another completed run of the same settings printed, which is then named.
    """
    if normalised(typed) in (normalised(cell.text), normalised(cell.text.split(" (")[0])):
        return RIGHT, ""
    try:
        value = read_cell(typed, cell.figure)
    except InputError as problem:
        return WRONG, f"found {typed!r}: {problem}"
    if value is None:  # "-" is right where the logs have nothing either
        return (RIGHT, "") if typed and cell.value is None else (BLANK, BLANK)
    if isinstance(value, str) or cell.value is None or isinstance(cell.value, bool):
        return WRONG, f"found {typed}: the logs {'have no such figure' if _is_missing(cell) else 'say otherwise'}"
    rounding = 0.5 * 10.0 ** -len(cell.text.partition(".")[2])

    def near(written: float | str | None, figure: float | None) -> bool:
        if not isinstance(written, float) or figure is None:
            return False
        allowed = max(abs(figure) * tolerance / 100, rounding)
        return abs(written - figure) <= allowed * (1 + 1e-9)  # the rounding of the decimal fractions themselves

    if near(value, cell.value):
        return RIGHT, ""
    shown = [_settings(run) for run in cell.runs]
    for run in [*cell.runs, *(run for run in runs if run.state == "completed" and _settings(run) in shown)]:
        for printed, what in _figures(run, cell.figure.name):
            if near(value, printed):
                return RIGHT, f"found {typed}: {what}"
    with suppress(InputError):
        if near(read_cell(typed.translate(_OTHER_MARKS), cell.figure), cell.value):
            advice = "write a point before decimals, a comma before thousands"
            return WRONG, f"found {typed}: read as {value:g}; {advice}"
    return WRONG, f"found {typed}: too {'large' if value > cell.value else 'small'}"


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
