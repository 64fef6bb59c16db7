"""Figures that a sentence quotes from a table: plain text, with the figure's name behind it in a comment nobody sees.

    FULL_SHARD trains 25.77<!--full--> samples/s, 0.56<!--share--> of DDP's.

    <!-- figures
    full: RESULTS.md#four-h200 Table 10 | FULL_SHARD | Samples/s
    ddp: RESULTS.md#four-h200 Table 10 | DDP | Samples/s
    share: = full / ddp
    -->

A name stands for a cell: the table's section and number (or the first cell of its header), the row's labels and the
column; or for `=` and arithmetic with names of the same file. The sentence decides the number of decimals; `python -m
tools report` puts the figure in, `report --check` fails where it differs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tools.errors import InputError
from tools.tables.markdown import Grid, grids, section

_START, _END = "<!-- figures", "-->"
_DEFINITION = re.compile(r"(\w+): (?:(?!= )(\S+) )?(= .+|.+ \| .+)")
_QUOTE = re.compile(r"((?<![\w.])-?\d[\d,]*(?:\.\d+)?|not measured|OOM|)<!--(\w+)-->")
_NAME = re.compile(r"[^\W\d]\w*")
_NUMBER = re.compile(r"-?\d[\d,]*(?:\.(\d+))?")


@dataclass(frozen=True)
class Definition:
    """Attributes: place: file and line for errors; target: file and section; title: the cell, or arithmetic."""

    place: str
    target: str
    title: str


def refreshed(path: Path, text: str, read: Callable[[Path], str]) -> tuple[str, list[str]]:
    """The file's text with every quoted figure as its table has it, and a line on each that differed.

    `read` gives the text of a file that a figure comes from.

    Raises:
        InputError: a definition names no cell, or several; a quoted figure has no definition.
    """
    lines = text.split("\n")
    found, defines = {}, False
    for number, line in enumerate(lines, 1):
        if defines and line != _END:
            if not (match := _DEFINITION.fullmatch(line)):
                raise InputError(
                    f"{path}:{number}: {line!r}: expected NAME: FILE#SECTION TABLE | ROW | COLUMN, or = ..."
                )
            found[match[1]] = Definition(f"{path}:{number}", match[2], match[3])
        defines = line == _START or (defines and line != _END)
    cells = {name: _cell(path, one, read) for name, one in found.items() if not one.title.startswith("= ")}
    differed = []
    for number, line in enumerate(lines, 1):

        def figure(match: re.Match, number: int = number, place: str = f"{path}:{number}") -> str:
            before, name = match.groups()
            if name not in found or not before:
                raise InputError(f"{place}: {match[0]}: {'no figure before it' if name in found else 'not defined'}")
            after = _written(before, _value(name, found, cells), place)
            if after != before:
                differed.append(f"{number}: {before}, but {found[name].title!r} is {after}")
            return f"{after}<!--{name}-->"

        lines[number - 1] = _QUOTE.sub(figure, line)
    return "\n".join(lines), differed


def _cell(path: Path, definition: Definition, read: Callable[[Path], str]) -> str:
    """The text of the cell that a definition names."""
    file, _, anchor = definition.target.partition("#")
    text = read((path.parent / file).resolve() if file else path)
    if anchor and (part := section(text, anchor)) is None:
        raise InputError(f"{definition.place}: {file or path.name} has no heading #{anchor}")
    cells = _cells(grids(part if anchor else text), definition.title)
    if len(cells) != 1:
        raise InputError(
            f"{definition.place}: {definition.title!r} is {len(cells)} cells of {definition.target}, not 1"
        )
    return cells[0]


def _cells(tables: list[Grid], title: str) -> list[str]:
    """The texts of the cells that a title names: "Table 10 | FULL_SHARD | Samples/s"."""
    name, *labels, column = title.split(" | ")
    return [
        row[table.header.index(column)]
        for table in tables
        if table.name == name and column in table.header
        for row in table.rows
        if row[: len(labels)] == labels
    ]


def _value(name: str, found: Mapping[str, Definition], cells: Mapping[str, str]) -> float | str:
    """A figure as a number, or as text where its cell has none."""
    if name in cells:
        match = _NUMBER.match(cells[name])
        return float(match[0].replace(",", "")) if match else cells[name]
    from jinja2 import TemplateError
    from jinja2.sandbox import SandboxedEnvironment

    one = found[name]
    try:
        numbers = {used: float(_value(used, found, cells)) for used in _NAME.findall(one.title)}
        return float(SandboxedEnvironment().compile_expression(one.title[2:])(**numbers))
    except (TemplateError, KeyError, TypeError, ValueError, ZeroDivisionError, RecursionError) as error:
        raise InputError(f"{one.place}: {one.title!r}: expected arithmetic with names of figures") from error


def _written(before: str, value: float | str, place: str) -> str:
    """The figure with the decimals that the sentence has."""
    if isinstance(value, str):
        return value
    match = _NUMBER.fullmatch(before)
    if not match:
        raise InputError(f"{place}: {before!r} quotes {value:,}, but is no number")
    return f"{value:,.{len(match[1] or '')}f}"
