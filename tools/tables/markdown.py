"""Captioned pipe tables in a Markdown file, as blank definitions (READMEs) or filled in (participants' copies)."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product, takewhile
from pathlib import Path
from typing import Any

from tools.errors import InputError
from workshop.record.printable import counted

Place = tuple[str, ...]  # of a cell: the labels of its row, and its column
_CAPTION = re.compile(r"\*\*Table (\d+[a-z]?)\*\* +\*(.+)\*")
_SEPARATOR = re.compile(r"\|?(\s*:?-+:?\s*\|)*\s*:?-+:?\s*\|?")
BLOCK_START = re.compile(r"<!-- generated: (.*) -->")
BLOCK_END = "<!-- end generated -->"
BY_HAND = "?"  # in a blank cell: the participant reads this figure
ON_GPU, ON_LAPTOP = "? GPU", "? laptop"  # only there
_BLANK = ("", BY_HAND, ON_GPU, ON_LAPTOP)
TINY_LINE = "tiny model: these are not BLOOM's figures"  # above tables that tiny runs fill

# A cell of a column of numbers: 1,020.5, 97 %, 1 to 4, 12.7 (30), or none.
_NUMBER = re.compile(r"(?:[+-]?\d[\d,.]*(?: [%s]| to \d+)?(?: \(\d[\d,.]*\))?|-|not measured)?")


@dataclass(frozen=True)
class Grid:
    """A pipe table as written.

    Attributes:
        path: its file.
        number: "1" of its caption, *Table 1*; "" without one.
        caption: the caption line.
        header, separator: the two lines above the rows; header as cells, separator as written.
        rows: cells of each body row.
        lines: line number (from 1) of each body row; header_line: of the header.
        tiny: whether tiny runs fill it.
        generated: whether it stands in a generated block, which is then its definition.
        definition: of an exercise's table what it asks for, a Table of table.py.
    """

    path: Path
    number: str
    caption: str
    header: list[str]
    separator: str
    rows: list[list[str]]
    lines: list[int]
    header_line: int
    tiny: bool = False
    generated: bool = False
    definition: Any = None

    @property
    def name(self) -> str:
        return f"Table {self.number}" if self.number else self.header[0]

    @property
    def blank(self) -> bool:
        return any(is_blank(cell) for row in self.rows for cell in row)

    @property
    def label_columns(self) -> int:
        return self.definition.label_columns

    @property
    def texts(self) -> dict[Place, str]:
        """What stands beside the labels."""
        labels = self.label_columns
        return {
            (*row[:labels], title): text
            for row in self.rows
            for title, text in zip(self.header[labels:], row[labels:], strict=True)
        }

    def with_texts(self, texts: Mapping[Place, str]) -> Grid:
        """The table with these texts in their places."""
        rows = []
        for row in self.rows:
            places = [(*row[: self.label_columns], title) for title in self.header]
            rows.append([texts.get(place, text) for place, text in zip(places, row, strict=True)])
        return replace(self, rows=rows)

    def marked_for(self, tiny: bool) -> Grid:
        """The table as tiny runs, or others, fill it, with the marks of what is read there."""
        marks = {ON_GPU: "" if tiny else BY_HAND, ON_LAPTOP: BY_HAND if tiny else ""}
        return replace(self, tiny=tiny, rows=[[marks.get(cell, cell) for cell in row] for row in self.rows])

    def with_marks_of(self, other: Grid) -> Grid:
        """The table with the marks and texts of another one, which has some of its rows and columns.

        Raises:
            InputError: the other one has a row or a column that this one lacks.
        """
        marks, texts = other.texts, self.texts
        if added := [place for place in marks if place not in texts]:
            place = " | ".join(added[0])
            raise InputError(f"{other.path}: {self.name} of {self.path.name} has no cell {place}; add it there")
        return self.with_texts(marks)

    @property
    def by_hand(self) -> int:
        """How many cells a participant fills by hand."""
        return sum(row.count(BY_HAND) for row in self.rows)


def is_blank(cell: str) -> bool:
    """Whether a cell of a definition is to be filled."""
    return cell in _BLANK


def normalised(label: str) -> str:
    """A label as it is looked up: markup, case and spacing do not change its meaning."""
    return " ".join(re.sub(r"[*`]|(?<!\w)_|_(?!\w)", "", label).split()).casefold()


def cells(line: str) -> list[str]:
    """Cells of a pipe table's line; an escaped pipe does not end a cell."""
    inner = line.strip().removeprefix("|")
    inner = inner[:-1] if inner.endswith("|") and not inner.endswith("\\|") else inner
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", inner)]


def read_text(path: Path) -> str:
    """A file's text. Raises InputError if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error  # an OSError's text repeats the path
        raise InputError(f"{path}: cannot be read as text: {why}") from error


def read_tables(path: Path) -> list[Grid]:
    """A file's captioned tables. Raises InputError as `read_text` and `tables_in`."""
    return [table for table in tables_in(read_text(path), path) if table.number]


def tables_in(text: str, path: Path = Path()) -> list[Grid]:
    """All pipe tables of a text outside fenced code; without the names behind figures.

    Raises:
        InputError: a caption without a table, or a row of a captioned table with another number of cells than its
            header.
    """
    lines = re.sub(r"<!--\w+-->", "", text).split("\n")
    tables, fenced, generated, caption = [], False, False, None
    for number, line in enumerate(map(str.strip, lines), 1):
        if "|" in line and not fenced and _SEPARATOR.fullmatch("".join(lines[number : number + 1]).strip()):
            rows = [cells(row) for row in takewhile(lambda row: "|" in row, lines[number + 1 :])]
            named = (caption[1], caption[0]) if caption else ("", "")
            numbers = list(range(number + 2, number + 2 + len(rows)))
            tables.append(Grid(path, *named, cells(line), lines[number], rows, numbers, number, generated=generated))
            if caption:
                _check(tables[-1])
            caption = None
        elif caption and line:
            break
        elif line.startswith(("```", "~~~")):
            fenced = not fenced
        elif BLOCK_START.fullmatch(line) or line == BLOCK_END:
            generated = line != BLOCK_END
        elif not fenced and (match := _CAPTION.fullmatch(line)):
            caption, below = match, number
    if caption:
        raise InputError(f"{path}:{below}: Table {caption[1]} has a caption, but no pipe table below it")
    return tables


def _check(table: Grid) -> None:
    for line, row in zip(table.lines, table.rows, strict=True):
        if len(row) != len(table.header):
            expected = f"the header of {table.name} has {len(table.header)}"
            raise InputError(f"{table.path}:{line}: {counted(len(row), 'cell')}, but {expected}")
    if not table.rows:
        raise InputError(f"{table.path}:{table.header_line}: {table.name} has no rows")


def section(text: str, anchor: str) -> str | None:
    """The part of a text below the heading with this anchor on GitHub, up to the next heading of its level."""
    headings = [(m.start(), len(m[1]), m[2]) for m in re.finditer(r"^(#+) +(.+)$", text, re.MULTILINE)]
    for number, (start, level, title) in enumerate(headings):
        if re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") == anchor:
            ends = [other for other, depth, _ in headings[number + 1 :] if depth <= level]
            return text[start : ends[0] if ends else len(text)]
    return None


def render(table: Grid) -> str:
    """The table with its caption, as Markdown."""
    header, *lines = [f"| {' | '.join(row)} |" for row in (table.header, *table.rows)]
    return "\n".join([table.caption, "", header, table.separator.strip(), *lines])


def cells_named(text: str) -> list[tuple[str, ...]]:
    """The labels of each cell in "TABLE | ROW; ROW | COLUMN"."""
    return list(product(*(part.split("; ") for part in text.split(" | "))))


def spreadsheet_text(value: object) -> object:
    """Return a csv cell: a leading quote before text that a spreadsheet would compute; numbers stay."""
    if not isinstance(value, str) or not value.startswith(("=", "+", "-", "@")):
        return value
    return value if re.fullmatch(r"[+-][\d.,]+(?:[eE][+-]?\d+)?", value) else f"'{value}"


def markdown(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown; columns of numbers stand on the right."""
    rows = list(rows)
    lines = [f"| {' | '.join(cells)} |".replace("|  |", "| |") for cells in (titles, *rows)]
    columns = [any(column) and all(map(_NUMBER.fullmatch, column)) for column in zip(*rows, strict=True)]
    marks = ("---:|" if numbers else "---|" for numbers in columns or [False] * len(titles))
    return "\n".join([lines[0], f"|{''.join(marks)}", *lines[1:]])


def text_table(rows: Sequence[Sequence[str]]) -> str:
    """Rows of cells, each column as wide as its widest cell."""
    return "\n".join("  ".join(row).rstrip() for row in padded(rows))


def padded(rows: Sequence[Sequence[str]], right: Container[int] = ()) -> list[list[str]]:
    """The cells, filled up to the width of their column; `right`: columns whose text stands on the right."""
    columns = []
    for place, column in enumerate(zip(*rows, strict=True)):
        width = max(map(len, column))
        columns.append([cell.rjust(width) if place in right else cell.ljust(width) for cell in column])
    return [list(row) for row in zip(*columns, strict=True)]
