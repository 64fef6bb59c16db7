"""The form of an exercise: its predictions and cells as a participant fills them in, and the verdicts of `check`."""

import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.errors import InputError
from tools.logs.figures import Figure
from tools.tables.fill import Cell, FilledTable
from tools.tables.markdown import BY_HAND, Grid, is_blank, markdown, normalised, section, tables_in
from tools.tables.table import predictions
from workshop.record.printable import counted

CellKey = tuple[str, ...]  # a cell's table, row and column
RIGHT, WRONG, BLANK = VERDICTS = ("right", "wrong", "not filled in")
_ABOUT = re.compile(r"(?:ca\.?|circa|approx\.?|about|~|≈)\s*", re.IGNORECASE)
_DECIMAL_COMMA = re.compile(r"^([+-]?\d+),(?!\d{3}\b)(\d+)")  # 0,7039 and 12,5, not 21,658
_NUMBER = re.compile(r"([+-]?(?:\d+|\d{1,3}(?:,\d{3})+)(?:\.\d+)?(?:[eE][+-]?\d+)?)\s*([A-Za-z%/]*)")
_NOTHING = {"", "-", "\N{EN DASH}", "\N{EM DASH}", "?", "...", "…", "n/a", "na", "n.a.", "none", "tbd", "todo"}

Prediction = tuple[str, str, Sequence[CellKey]]  # its name, the participant's text, and the cells that it is about
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
    match = _NUMBER.fullmatch(plain)
    if not match:
        raise InputError("neither a figure such as 12.5 or 21,658 nor a word such as OOM")
    if match[2] and match[2] != figure.unit:
        raise InputError(f"in {match[2]}, but the column is in {figure.unit or 'no unit'}")
    return float(match[1].replace(",", ""))


@dataclass(frozen=True)
class Judgement:
    """Attributes: line: in the form; verdict: one of VERDICTS; text: the remark, "" for none; expected: as filled."""

    cell: CellKey
    line: int
    verdict: str
    text: str
    expected: str

    @property
    def place(self) -> str:
        return f"Table {', '.join(self.cell)}"


@dataclass(frozen=True)
class Checked:
    """A table of a form: as the participant wrote it, as the runs fill it, and the judgement of its cells."""

    copy: Grid
    filled: FilledTable
    cells: list[Judgement]


def counts(checked: Sequence[Checked]) -> Counter[str]:
    """How many cells have each verdict."""
    return Counter(cell.verdict for table in checked for cell in table.cells)


def questions(folder: Path, tiny: bool = False) -> list[str]:
    """The numbered questions below a README's heading *Predict*, and on GPUs its rows that wait for a prediction."""
    text = (folder / "README.md").read_text(encoding="utf-8")
    asked = re.findall(r"^\d+\. (.+(?:\n   .+)*)", section(text, "predict") or "", re.MULTILINE)
    for rows in [grid.rows for grid in tables_in(text) if "Your prediction" in grid.header and not tiny]:
        asked += [f"The gain of rung {row[0]}" for row in rows if is_blank(row[-1])]
    return [" ".join(re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", question).split()) for question in asked]


def predictions_form(folder: Path, tiny: bool) -> str:
    """A table with a cell for each prediction, "" if nothing is asked."""
    rows = [(f"{number}. {question}", BY_HAND) for number, question in enumerate(questions(folder, tiny), 1)]
    return markdown((_TITLE, _COLUMN), rows) if rows else ""


def typed_predictions(text: str, folder: Path) -> Iterator[Prediction]:
    """Those of a form's table of predictions, with the cells that the tables.py in the exercise's folder names."""
    asked = predictions(folder)
    for grid in tables_in(text):
        if grid.header[:2] == [_TITLE, _COLUMN]:
            for question, yours, *_ in grid.rows:
                number = question.partition(".")[0]
                yield number, yours, asked.get(number, [])


def prediction_lines(
    predicted: Iterable[Prediction], cells: Mapping[CellKey, Cell], unread: Container[CellKey]
) -> Iterator[str]:
    """A line for each prediction, and below it one for each of its figures.

    `12; 6` predicts two figures. As many as there are cells are judged, each by its own.

    Args:
        cells: what the runs say.
        unread: cells that the participant has still to read; what they show is not told.
    """
    for name, yours, places in predicted:
        if is_blank(yours):
            continue
        values = yours.split(";")
        in_figures = any(map(str.isdigit, yours))
        judged = in_figures and len(values) == len(places)
        yield f"prediction {name}: {yours}"
        if in_figures and places and not judged:
            yield f"  for you to compare; {counted(len(places), 'figure')}, as `12; 6`, would be judged"
        for at, place in enumerate(places):
            cell, told = cells[place], "first read it"
            if place not in unread:
                told = f"{cell.text}: {how_close(values[at], cell)}" if judged else cell.text
            yield f"  Table {', '.join(place)}: {told}"


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
