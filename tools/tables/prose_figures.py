"""Figures that a sentence quotes from a table: plain text, with the figure's name behind it in a comment nobody sees.

    FULL_SHARD trains 25.77<!--full--> samples/s, 0.56<!--share--> of DDP's.

    <!-- figures
    full ddp: RESULTS.md#four-h200 Table 10 | FULL_SHARD; DDP | Samples/s
    share: = full / ddp
    -->

A name stands for a cell: the table's section and number (or the first cell of its header), the row's labels and the
column; or for `=` and arithmetic with names of the same file. Names whose cells differ in one part share a line. The
sentence decides the number of decimals; `python -m tools report` puts the figure in, `report --check` fails where it
differs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from tools.errors import InputError
from tools.tables.markdown import cells_named, section, tables_in

_LIST = re.compile(r"^<!-- figures\n(.*?)^-->$", re.MULTILINE | re.DOTALL)
_DEFINITION = re.compile(r"(\w+(?: \w+)*): (?:(?!= )(\S+) )?(= .+|.+ \| .+)")
_QUOTE = re.compile(r"((?<![\w.])-?\d[\d,]*(?:\.\d+)?|not measured|OOM|)<!--(\w+)-->")
_NAME = re.compile(r"[^\W\d]\w*")
_NUMBER = re.compile(r"-?\d[\d,]*(?:\.(\d+))?")


def refreshed(path: Path, text: str, read: Callable[[Path], str]) -> tuple[str, list[str]]:
    """The file's text with every quoted figure as its table has it, and a line on each that differed.

    `read` gives the text of a file that a figure comes from.

    Raises:
        InputError: a definition names no cell, or several; a quoted figure has no definition.
    """

    def line(position: int) -> int:
        return text.count("\n", 0, position) + 1

    titles, places, values, differed = {}, {}, {}, []
    for block in _LIST.finditer(text):
        for number, definition in enumerate(block[1].splitlines(), line(block.start(1))):
            match = _DEFINITION.fullmatch(definition)
            names, target, title = (match[1].split(), match[2], match[3]) if match else ([], "", "")
            cells = [" | ".join(labels) for labels in cells_named(title)]
            if len(cells) != len(names):
                raise InputError(
                    f"{path}:{number}: {definition!r}: expected NAME: FILE#SECTION TABLE | ROW | COLUMN, or = ..., "
                    "or NAME NAME: with two rows or columns, as ROW; ROW"
                )
            for name, cell in zip(names, cells, strict=True):
                titles[name], places[name] = cell, f"{path}:{number}"
                if target:
                    values[name] = _cell(path, places[name], target, cell, read)

    def figure(match: re.Match) -> str:
        (before, name), number = match.groups(), line(match.start())
        if name not in titles or not before:
            why = "no figure before it" if name in titles else "not defined"
            raise InputError(f"{path}:{number}: {match[0]}: {why}")
        after = _written(before, _value(name, titles, values, places[name]), f"{path}:{number}")
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


def _value(name: str, titles: Mapping[str, str], values: Mapping[str, float | str], place: str) -> float | str:
    if name in values:
        return values[name]
    from jinja2 import TemplateError
    from jinja2.sandbox import SandboxedEnvironment

    formula = titles[name]
    try:
        numbers = {used: float(_value(used, titles, values, place)) for used in _NAME.findall(formula)}
        return float(SandboxedEnvironment().compile_expression(formula[2:])(**numbers))
    except (TemplateError, KeyError, TypeError, ValueError, ZeroDivisionError, RecursionError) as error:
        raise InputError(f"{place}: {formula!r}: expected arithmetic with names of figures") from error


def _written(before: str, value: float | str, place: str) -> str:
    """The figure with the decimals that the sentence has."""
    if isinstance(value, str):
        return value
    match = _NUMBER.fullmatch(before)
    if not match:
        raise InputError(f"{place}: {before!r} quotes {value:,}, but is no number")
    return f"{value:,.{len(match[1] or '')}f}"
