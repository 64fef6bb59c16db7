"""Figures that a sentence quotes from a table: plain text, with the figure's name behind it in a comment nobody sees.

    FULL_SHARD trains 25.77<!--full--> samples/s, 0.56<!--share--> of DDP's.

    <!-- figures
    full ddp: RESULTS.md#four-h200 Table 10 | FULL_SHARD; DDP | Samples/s
    share: ratio full ddp
    -->

A name stands for a cell: the table's section and number (or the first cell of its header), the row's labels and the
column; or for one of the FUNCTIONS of two names above it. Names whose cells differ in one part share a line. The
sentence decides the number of decimals; `python -m tools report` puts the figure in, `report --check` fails where it
differs.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from tools.errors import InputError
from tools.tables.markdown import cells_named, section, tables_in

FUNCTIONS: dict[str, Callable[[float, float], float]] = {
    "ratio": lambda one, other: one / other,
    "difference": lambda one, other: one - other,
    "percent": lambda one, other: 100 * one / other,
    "percent_less": lambda one, other: 100 * (1 - one / other),
    "percent_more": lambda one, other: 100 * (one / other - 1),
}
_LIST = re.compile(r"^<!-- figures\n(.*?)^-->$", re.MULTILINE | re.DOTALL)
_CELLS = re.compile(r"(\w+(?: \w+)*): (\S+) (.+ \| .+)")
_FUNCTION = re.compile(r"(\w+): (\w+) (\w+) (\w+)")
_QUOTE = re.compile(r"((?<![\w.])-?\d[\d,]*(?:\.\d+)?|not measured|OOM|)<!--(\w+)-->")
_NUMBER = re.compile(r"-?\d[\d,]*(?:\.(\d+))?")


def refreshed(path: Path, text: str, read: Callable[[Path], str]) -> tuple[str, list[str]]:
    """The file's text with every quoted figure as its table has it, and a line on each that differed.

    `read` gives the text of a file that a figure comes from.

    Raises:
        InputError: a definition names no cell, or several, or is no function of two figures; a quoted figure has no
            definition.
    """

    def line(position: int) -> int:
        return text.count("\n", 0, position) + 1

    titles: dict[str, str] = {}
    values: dict[str, float | str] = {}
    differed = []
    for block in _LIST.finditer(text):
        for number, definition in enumerate(block[1].splitlines(), line(block.start(1))):
            place = f"{path}:{number}"
            if match := _CELLS.fullmatch(definition):
                names, cells = match[1].split(), [" | ".join(labels) for labels in cells_named(match[3])]
                if len(names) != len(cells):
                    raise InputError(f"{place}: {definition!r}: expected as many names as rows or columns, as ROW; ROW")
                titles |= dict(zip(names, cells, strict=True))
                values |= {name: _cell(path, place, match[2], titles[name], read) for name in names}
            else:
                name, titles[name], values[name] = _computed(definition, values, place)

    def figure(match: re.Match) -> str:
        (before, name), number = match.groups(), line(match.start())
        if name not in titles or not before:
            why = "no figure before it" if name in titles else "not defined"
            raise InputError(f"{path}:{number}: {match[0]}: {why}")
        after = _written(before, values[name], f"{path}:{number}")
        if after != before:
            differed.append(f"{number}: {before}, but {titles[name]!r} is {after}")
        return f"{after}<!--{name}-->"

    return _QUOTE.sub(figure, text), differed


def _cell(path: Path, place: str, target: str, title: str, read: Callable[[Path], str]) -> float | str:
    """The number, or the text, of the cell that a title names: "Table 10 | FULL_SHARD | Samples/s"."""
    file, _, anchor = target.partition("#")
    text = read((path.parent / file).resolve() if file else path)
    if anchor and (part := section(text, anchor)) is None:
        raise InputError(f"{place}: {file or path.name} has no heading #{anchor}")
    table, *labels, column = title.split(" | ")
    cells = [
        row[grid.header.index(column)]
        for grid in tables_in(part if anchor else text)
        if grid.name == table and column in grid.header
        for row in grid.rows
        if row[: len(labels)] == labels
    ]
    if len(cells) != 1:
        raise InputError(f"{place}: {title!r} is {len(cells)} cells of {target}, not 1")
    match = _NUMBER.match(cells[0])
    return float(match[0].replace(",", "")) if match else cells[0]


def _computed(definition: str, values: dict[str, float | str], place: str) -> tuple[str, str, float]:
    """The name, the function with its names, and the value of a line such as `share: ratio full ddp`."""
    try:
        name, function, one, other = _FUNCTION.fullmatch(definition).groups()
        return name, f"{function} {one} {other}", FUNCTIONS[function](values[one], values[other])
    except (AttributeError, KeyError, TypeError, ZeroDivisionError) as error:
        expected = f"NAME: FILE#SECTION TABLE | ROW | COLUMN, or NAME: {' or '.join(FUNCTIONS)} of two names above it"
        raise InputError(f"{place}: {definition!r}: expected {expected}") from error


def _written(before: str, value: float | str, place: str) -> str:
    """The figure with the decimals that the sentence has."""
    if isinstance(value, str):
        return value
    match = _NUMBER.fullmatch(before)
    if not match:
        raise InputError(f"{place}: {before!r} quotes {value:,}, but is no number")
    return f"{value:,.{len(match[1] or '')}f}"
