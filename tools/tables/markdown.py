"""Captioned pipe tables in a Markdown file, as blank definitions (READMEs) or filled in (participants' copies)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any

from tools.errors import InputError
from workshop.run_folder.plural import counted

_CAPTION = re.compile(r"\*\*Table (\d+[a-z]?)\*\* +\*(.+)\*")
_SEPARATOR = re.compile(r"\|?(\s*:?-+:?\s*\|)*\s*:?-+:?\s*\|?")
BLOCK_START = re.compile(r"<!-- generated: (.*) -->")
BLOCK_END = "<!-- end generated -->"
BY_HAND, EXTRA = "?", "-"  # in a blank cell: the participant reads this figure; no must-do run gives it
_BLANK = ("", BY_HAND, EXTRA)


@dataclass(frozen=True)
class Table:
    """One table as written.

    Attributes:
        path: its file.
        number: "1" of "Table 1".
        caption: the caption line.
        header, separator: the two lines above the rows; header as cells, separator as written.
        rows: cells of each body row.
        lines: line number (from 1) of each body row; header_line: of the header.
        tiny: whether it is about tiny runs.
        generated: whether it stands in a generated block, which is then its definition.
        exercises, where: of a blank table, whose runs fill it, and conditions on all of them (labels.py).
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
    exercises: tuple[str, ...] = ()
    where: dict[str, Any] = field(default_factory=dict)

    @property
    def blank(self) -> bool:
        return any(is_blank(cell) for row in self.rows for cell in row)

    @property
    def label_columns(self) -> int:
        """Leading columns that are filled in every row: they label the rows."""
        columns = zip(*self.rows, strict=True)
        return next((i for i, column in enumerate(columns) if any(map(is_blank, column))), len(self.header))

    def separator_of(self, columns: Sequence[int]) -> str:
        """The line under a header that has only these columns."""
        marks = cells(self.separator)
        return f"|{'|'.join(marks[at] for at in columns)}|"

    @property
    def by_hand(self) -> int:
        """How many cells a participant fills by hand."""
        return sum(row.count(BY_HAND) for row in self.rows)


def is_blank(cell: str) -> bool:
    """Whether a cell of a definition is to be filled."""
    return cell in _BLANK


def cells(line: str) -> list[str]:
    """Cells of a pipe table's line; an escaped pipe does not end a cell."""
    inner = line.strip().removeprefix("|")
    inner = inner[:-1] if inner.endswith("|") and not inner.endswith("\\|") else inner
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", inner)]


def read_tables(path: Path, generated: bool = False) -> list[Table]:
    """All captioned tables outside fenced code: outside generated blocks, or with `generated` inside them.

    Raises:
        InputError: a caption without a table, or a row with another number of cells than its header.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error  # an OSError's text repeats the path
        raise InputError(f"{path}: cannot be read as text: {why}") from error
    tables, fenced, in_block = [], False, False
    for number, line in enumerate(lines, 1):
        if line.lstrip().startswith(("```", "~~~")):
            fenced = not fenced
        elif BLOCK_START.fullmatch(line.strip()) or line.strip() == BLOCK_END:
            in_block = line.strip() != BLOCK_END
        elif not fenced and in_block == generated and (match := _CAPTION.fullmatch(line.strip())):
            tables.append(_table(path, match, lines, number))
    return tables


def _table(path: Path, caption: re.Match, lines: list[str], below: int) -> Table:
    """The table under a caption; `below` is the index of the line after the caption."""
    start = next((i for i in range(below, len(lines)) if lines[i].strip()), len(lines))
    if not (found := _pipe_table(lines, start)):
        raise InputError(f"{path}:{below}: Table {caption[1]} has a caption, but no pipe table below it")
    header, rows = found
    numbers = list(range(start + 3, start + 3 + len(rows)))
    for i, row in zip(numbers, rows, strict=True):
        if len(row) != len(header):
            count = counted(len(row), "cell")
            raise InputError(f"{path}:{i}: {count}, but the header of Table {caption[1]} has {len(header)}")
    if not rows:
        raise InputError(f"{path}:{start + 1}: Table {caption[1]} has no rows")
    return Table(path, caption[1], caption[0], header, lines[start + 1], rows, numbers, start + 1)


def _pipe_table(lines: list[str], start: int) -> tuple[list[str], list[list[str]]] | None:
    """Header and rows of the table that begins in a line; None if none does."""
    if start + 1 >= len(lines) or "|" not in lines[start] or not _SEPARATOR.fullmatch(lines[start + 1].strip()):
        return None
    return cells(lines[start]), [cells(row) for row in takewhile(lambda row: "|" in row, lines[start + 2 :])]


@dataclass(frozen=True)
class Grid:
    """A pipe table anywhere in a text. Attributes: name: "Table 1" of its caption, or the header's first cell."""

    name: str
    header: list[str]
    rows: list[list[str]]


def grids(text: str) -> list[Grid]:
    """All pipe tables of a text, those in generated blocks too; without the names behind figures."""
    lines = re.sub(r"<!--\w+-->", "", text).split("\n")
    found, name = [], ""
    for position, line in enumerate(lines):
        if match := _CAPTION.fullmatch(line.strip()):
            name = f"Table {match[1]}"
        elif line.startswith("|") and (table := _pipe_table(lines, position)):
            found.append(Grid(name or table[0][0], *table))
            name = ""
    return found


def section(text: str, anchor: str) -> str | None:
    """The part of a text below the heading with this anchor on GitHub, up to the next heading of its level."""
    headings = [(m.start(), len(m[1]), m[2]) for m in re.finditer(r"^(#+) +(.+)$", text, re.MULTILINE)]
    for number, (start, level, title) in enumerate(headings):
        if re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") == anchor:
            ends = [other for other, depth, _ in headings[number + 1 :] if depth <= level]
            return text[start : ends[0] if ends else len(text)]
    return None


def render(table: Table, rows: list[list[str]]) -> str:
    """The table with its caption and other rows, as Markdown."""
    header, *lines = [f"| {' | '.join(row)} |" for row in (table.header, *rows)]
    return "\n".join([table.caption, "", header, table.separator.strip(), *lines])
