"""Reads the cells that participants wrote, and holds the verdicts of `check`."""

import re
from collections import Counter
from dataclasses import dataclass

from tools.errors import InputError
from tools.logs.figures import Figure
from tools.tables.fill import FilledTable
from tools.tables.labels import normalised

RIGHT, WRONG, BLANK = VERDICTS = ("right", "wrong", "not filled in")
_ABOUT = re.compile(r"(?:ca\.?|circa|approx\.?|about|~|≈)\s*", re.IGNORECASE)
_DECIMAL_COMMA = re.compile(r"^([+-]?\d+),(?!\d{3}\b)(\d+)")  # 0,7039 and 12,5, not 21,658
_NUMBER = re.compile(r"([+-]?(?:\d+|\d{1,3}(?:,\d{3})+)(?:\.\d+)?(?:[eE][+-]?\d+)?)\s*([A-Za-z%/]*)")
_DURATION = re.compile(r"(?:(\d+):)?(\d{1,2}):(\d{2}(?:\.\d+)?)")
_NOTHING = {"", "-", "\N{EN DASH}", "\N{EM DASH}", "?", "...", "…", "n/a", "na", "n.a.", "none", "tbd", "todo"}
# Other ways to write a figure's unit.
_UNIT_NAMES = {"sec": "s", "seconds": "s", "samples/sec": "samples/s", "steps/sec": "steps/s", "tokens/sec": "tokens/s"}


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
    """Attributes: verdict: one of VERDICTS; text: what to say about the cell, "" for nothing."""

    table: str
    line: int
    row: str
    column: str
    verdict: str
    text: str


Checked = list[tuple[FilledTable, list[Judgement]]]


def counts(checked: Checked) -> Counter[str]:
    """How many cells have each verdict."""
    return Counter(cell.verdict for _, cells in checked for cell in cells)


@dataclass(frozen=True)
class Grade:
    """One participant's file.

    Attributes:
        file: as given.
        name: of the participant.
        checked: its tables as the runs fill them, each with the judgement of its cells.
        problem: why it could not be checked, "" for nothing.
    """

    file: str
    name: str
    checked: Checked
    problem: str = ""

    @property
    def count(self) -> Counter[str]:
        return counts(self.checked)

    @property
    def tables(self) -> str:
        """Their numbers."""
        return " ".join(table.table.number for table, _ in self.checked)
