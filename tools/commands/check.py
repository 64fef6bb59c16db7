"""Compare a participant's filled-in tables with the logs, cell by cell.

A figure is right within the tolerance (percent), or half a unit of the last digit that `fill` prints if that is more.
"""

import argparse
import re
from dataclasses import dataclass
from pathlib import Path

from tools.commands.logs_option import add_logs_option, chosen_logs
from tools.errors import InputError
from tools.logs.runs import find_runs, save_figures
from tools.tables import fill as tables
from tools.tables import markdown
from tools.tables.fill import Cell
from tools.tables.markdown import Table
from tools.tables.registry import normalised
from tools.tables.repository import no_runs, table_definitions

_NUMBER = re.compile(r"([+-]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:[eE][+-]?\d+)?)\s*([A-Za-z%/]*)")
_DURATION = re.compile(r"(?:(\d+):)?(\d{1,2}):(\d{2}(?:\.\d+)?)")
# Other ways to write a metric's unit.
_UNIT_NAMES = {"sec": "s", "seconds": "s", "samples/sec": "samples/s", "steps/sec": "steps/s"}


@dataclass(frozen=True)
class Difference:
    """A cell that is not as in the logs; `found` is "" where the participant left it blank."""

    table: str
    line: int
    row: str
    column: str
    found: str
    expected: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, help="a Markdown file with a filled-in copy of the README's tables")
    add_logs_option(parser)
    parser.add_argument("--tolerance", type=_percent, default=2.0, metavar="PERCENT", help="default: 2")
    parser.add_argument("--complete", action="store_true", help="a cell that is not filled in is wrong, too")


def _percent(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a percentage of at least 0")
    return value


def run(arguments: argparse.Namespace) -> int:
    logs = chosen_logs(arguments)
    copies = markdown.read_tables(arguments.file)
    if not copies:
        raise InputError(f"{arguments.file}: no tables found; keep each caption (**Table 1** *Title*) above its table")
    known = table_definitions()
    pairs = [(copy, _definition(copy, known)) for copy in copies]
    runs = find_runs(*logs)
    exercises = tables.exercises_of(table for _, table in pairs)
    if not any(run.record.get("exercise") in exercises for run in runs):
        raise no_runs(logs, exercises[0])
    different, count = [], 0
    for copy, definition in pairs:
        filled = tables.fill(definition, runs)
        count += sum(cell is not None for row in filled.cells for cell in row)
        different += compare(copy, filled, arguments.tolerance / 100)
    save_figures(runs)
    blank = [cell for cell in different if not cell.found]
    wrong = [cell for cell in different if cell.found or arguments.complete]
    for cell in different:
        found = f"found {cell.found}, expected {cell.expected}" if cell.found else "not filled in"
        print(f"{arguments.file}:{cell.line}: Table {cell.table}, {cell.row}, {cell.column}: {found}")
    right, not_right = count - len(different), len(different) - len(blank)
    print(f"{count} cells: {right} right, {not_right} wrong, {len(blank)} not filled in")
    print(f"tolerance: {arguments.tolerance:g} %, or half a unit of the last digit that fill prints if that is more")
    return 1 if wrong else 0


def _definition(copy: Table, known: dict[str, Table]) -> Table:
    """The blank table a copy belongs to, with the same header.

    Raises:
        InputError: no README has a table of that number, or its columns are others.
    """
    place = f"{copy.path}:{copy.header_line}"
    if copy.number not in known:
        numbers = ", ".join(known) or "no blank tables"
        raise InputError(f"{place}: unknown Table {copy.number}; the READMEs have {numbers}")
    definition = known[copy.number]
    if list(map(normalised, copy.header)) != list(map(normalised, definition.header)):
        header = " | ".join(definition.header)
        raise InputError(f"{place}: the columns of Table {copy.number} are not those of {definition.path}: {header}")
    return definition


def compare(copy: Table, filled: tables.FilledTable, tolerance: float) -> list[Difference]:
    """The copy's cells that differ from the filled table by more than `tolerance` (a fraction), or are blank.

    Raises:
        InputError: a row is not in the definition or is twice in the copy, or a cell is neither a figure nor a word.
    """
    labels = filled.table.label_columns
    written: dict[tuple[str, ...], tuple[int, list[str]]] = {}
    known = [_row_labels(row, labels) for row in filled.table.rows]
    for line, row in zip(copy.lines, copy.rows, strict=True):
        key = _row_labels(row, labels)
        if key not in known or key in written:
            problem = "is there twice" if key in written else f"is not in Table {copy.number} of {filled.table.path}"
            raise InputError(f"{copy.path}:{line}: the row {' / '.join(row[:labels])!r} {problem}")
        written[key] = line, row
    different = []
    for key, row, cells in zip(known, filled.table.rows, filled.cells, strict=True):
        line, own = written.get(key, (copy.header_line, [""] * len(row)))
        for found, cell, column in zip(own, cells, filled.table.header, strict=True):
            if cell is not None and not (found and agrees(found, cell, tolerance, f"{copy.path}:{line}")):
                different.append(Difference(copy.number, line, " / ".join(row[:labels]), column, found, cell.text))
    return different


def _row_labels(row: list[str], count: int) -> tuple[str, ...]:
    return tuple(normalised(cell) for cell in row[:count])


def agrees(found: str, cell: Cell, tolerance: float, place: str) -> bool:
    """Whether a participant's cell is what the logs say; `place` (file:line) is for the error.

    Raises:
        InputError: `found` is neither a figure nor a word, or has another unit.
    """
    if normalised(found) == normalised(cell.text):
        return True
    number = _figure(found, cell, place)
    if number is None or cell.value is None or isinstance(cell.value, bool):
        return False
    allowed = max(abs(cell.value) * tolerance, 0.5 * 10.0**-cell.metric.decimals)
    return abs(number - cell.value) <= allowed * (1 + 1e-9)  # the rounding of the decimal fractions themselves


def _figure(found: str, cell: Cell, place: str) -> float | None:
    if not any(character.isdigit() for character in found):
        return None
    if cell.metric.unit == "s" and (match := _DURATION.fullmatch(found)):
        return int(match[1] or 0) * 3600 + int(match[2]) * 60 + float(match[3])
    match = _NUMBER.fullmatch(found)
    if not match:
        raise InputError(f"{place}: {found!r} is neither a figure such as 12.5 or 21,658 nor a word such as OOM")
    unit = _UNIT_NAMES.get(match[2], match[2])
    if unit and unit != cell.metric.unit:
        raise InputError(f"{place}: {found!r} is in {match[2]}, the column is in {cell.metric.unit or 'no unit'}")
    return float(match[1].replace(",", ""))
