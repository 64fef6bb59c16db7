"""The form of an exercise: its predictions and cells as a participant fills them in, and the verdicts of `check`."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.errors import InputError
from tools.logs.figures import Figure
from tools.logs.run import Run
from tools.tables.fill import Cell, FilledTable, fill
from tools.tables.markdown import BY_HAND, Grid, is_blank, markdown, normalised, section, tables_in
from tools.tables.table import blank_tables, predictions

RIGHT, WRONG, BLANK = VERDICTS = ("right", "wrong", "not filled in")
_ABOUT = re.compile(r"(?:ca\.?|circa|approx\.?|about|~|≈)\s*", re.IGNORECASE)
_DECIMAL_COMMA = re.compile(r"^([+-]?\d+),(?!\d{3}\b)(\d+)")  # 0,7039 and 12,5, not 21,658
_NUMBER = re.compile(r"([+-]?(?:\d+|\d{1,3}(?:,\d{3})+)(?:\.\d+)?(?:[eE][+-]?\d+)?)\s*([A-Za-z%/]*)")
_DURATION = re.compile(r"(?:(\d+):)?(\d{1,2}):(\d{2}(?:\.\d+)?)")
_NOTHING = {"", "-", "\N{EN DASH}", "\N{EM DASH}", "?", "...", "…", "n/a", "na", "n.a.", "none", "tbd", "todo"}
# Other ways to write a figure's unit.
_UNIT_NAMES = {"sec": "s", "seconds": "s", "samples/sec": "samples/s", "steps/sec": "steps/s", "tokens/sec": "tokens/s"}

_CLOSE_PERCENT = 10  # a prediction that is right
_TITLE, _COLUMN = "Prediction", "Yours"  # of the table of predictions


def read_cell(text: str, figure: Figure) -> float | str | None:
    """The number or word in a participant's cell; None for an empty cell or a mark such as "-".

    Raises:
        InputError: why it cannot be read.
    """
    plain = normalised(text)
    if plain in _NOTHING:
        return None
    if not any(character.isdigit() for character in plain):
        return plain
    plain = _DECIMAL_COMMA.sub(r"\1.\2", _ABOUT.sub("", text.strip("*_` "), count=1))
    if figure.unit == "s" and (match := _DURATION.fullmatch(plain)):
        return int(match[1] or 0) * 3600 + int(match[2]) * 60 + float(match[3])
    match = _NUMBER.fullmatch(plain)
    if not match:
        raise InputError("neither a figure such as 12.5 or 21,658 nor a word such as OOM")
    unit = _UNIT_NAMES.get(match[2], match[2])
    if unit and unit != figure.unit:
        raise InputError(f"in {match[2]}, but the column is in {figure.unit or 'no unit'}")
    return float(match[1].replace(",", ""))


@dataclass(frozen=True)
class Judgement:
    """Attributes: verdict: one of VERDICTS; text: what to say about the cell, "" for nothing; expected: as filled."""

    table: str
    line: int
    row: str
    column: str
    verdict: str
    text: str
    expected: str


@dataclass(frozen=True)
class Checked:
    """A table of a form: as the participant wrote it, as the runs fill it, and the judgement of its cells."""

    copy: Grid
    filled: FilledTable
    cells: list[Judgement]


def counts(checked: Sequence[Checked]) -> Counter[str]:
    """How many cells have each verdict."""
    return Counter(cell.verdict for table in checked for cell in table.cells)


def questions(folder: Path) -> list[str]:
    """The numbered questions below a README's heading *Predict*, or its rows that wait for a prediction."""
    text = (folder / "README.md").read_text(encoding="utf-8")
    asked = re.findall(r"^\d+\. (.+(?:\n   .+)*)", section(text, "predict") or "", re.MULTILINE)
    for rows in [grid.rows for grid in tables_in(text) if "Your prediction" in grid.header]:
        asked += [f"The gain of rung {row[0]}" for row in rows if is_blank(row[-1])]
    return [" ".join(re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", question).split()) for question in asked]


def predictions_form(folder: Path) -> str:
    """A table with a cell for each prediction, "" if nothing is asked."""
    rows = [(f"{number}. {question}", BY_HAND) for number, question in enumerate(questions(folder), 1)]
    return markdown((_TITLE, _COLUMN), rows) if rows else ""


def prediction_lines(checked: Sequence[Checked], text: str, runs: list[Run], show: bool) -> Iterator[str]:
    """A line for each prediction in a form, and below it one for each figure that the exercise's tables.py names.

    `12; 6` predicts two figures. As many as there are cells are judged, each by its own.

    Args:
        checked: the form's tables.
        text: the form.
        runs: which fill the exercise's tables that the form lacks.
        show: also figures of cells that the participant has not read, or read wrongly.
    """
    typed = [row for grid in tables_in(text) if grid.header[:2] == [_TITLE, _COLUMN] for row in grid.rows]
    form = checked[0].filled.table
    asked = predictions(form.path.parent) if typed else {}  # the closing task's form has none
    own = {table.copy.number: table.filled for table in checked}
    blank = {table.number: table for table in blank_tables(form.path.parent, form.tiny)} if asked else {}
    judgements = (one for table in checked for one in table.cells)
    unread = {(one.table, one.row, one.column) for one in judgements if one.verdict != RIGHT}
    for question, yours, *_ in typed:
        if is_blank(yours):
            continue
        number, values = question.partition(".")[0], yours.split(";")
        yield f"prediction {number}: {yours}"
        labels = asked.get(number, [])
        for at, (table, row, column) in enumerate(labels):
            cell = (own.get(table) or fill(blank[table], runs)).cells[row, column]
            hidden = (table, row, column) in unread and not show
            judged = not hidden and len(values) == len(labels) and any(map(str.isdigit, values[at]))
            verdict = f": {how_close(values[at], cell)}" if judged else ""
            yield f"  Table {table}, {row}, {column}: {'first read it' if hidden else cell.text}{verdict}"


def how_close(yours: str, cell: Cell) -> str:
    """A prediction beside the figure that was measured."""
    try:
        predicted = read_cell(yours, cell.figure)
    except InputError as problem:
        return str(problem)
    if not isinstance(predicted, float) or cell.value is None:
        return "not comparable"
    low, high = sorted((predicted, cell.value))
    if high <= low * (1 + _CLOSE_PERCENT / 100):
        return RIGHT
    return "within a factor of two" if high <= 2 * low else "off"
