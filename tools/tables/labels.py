"""Reads what the blank cells of an exercise's README.md and RESULTS.md ask for, by its tables.toml.

A row's or column's label names a figure, or selects runs, or both ("Peak GPU Memory, offload (MiB)"). A cell is its
table's conditions merged with its row's and its column's, and must end with exactly one figure. Labels that several
exercises use are in words.toml beside this file; CONTRIBUTING.md describes the format.
"""

from __future__ import annotations

import operator
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial, reduce
from pathlib import Path

from tools.errors import InputError
from tools.logs.figures import Figure
from tools.logs.run import NoneOf, Where, is_fact
from tools.tables.comparisons import FIGURES
from tools.tables.markdown import Table, cells_named, normalised, read_tables
from tools.tables.selection import run_conditions
from tools.tables.table import Table as Definition
from workshop.run_folder.exercises import FURTHER, REPO

_WORDS = Path(__file__).with_name("words.toml")
# The speed ladder's rungs, by their names in labels: "1 bf16", "variant: float8", "peer: trl padded".
RUNGS = {
    path.stem.replace("variant_", "variant: ").replace("peer_", "peer: ").replace("_", " "): path.stem
    for path in REPO.glob(f"{FURTHER}/speed-ladder/rungs/*.env")
}
# What {model} and others in labels stand for: a pattern, and from the text to the condition; by default a whole number.
_FIELDS = {
    **{"model": (r"[\w.-]+", str), "config": (r"\w+", str), "precision": ("fp32|fp16|bf16", str)},
    **{"stage": ("[0-3]", int), "learning_rate": (r"\d(?:\.\d+)?e-\d", float), "rung": ("|".join(RUNGS), RUNGS.get)},
}
_WHOLE = (r"\d[\d,]*", lambda text: int(text.replace(",", "")))


@dataclass(frozen=True)
class Label:
    """What a label asks for, or all labels of a cell together.

    Attributes:
        figure: None if no label names one.
        where: conditions on the run, see Run.fact.
        std: the figure's standard deviation over the repeats, in place of its median.
    """

    figure: Figure | None = None
    where: Where = field(default_factory=dict)
    std: bool = False


@dataclass(frozen=True)
class Dictionary:
    """A tables.toml.

    Attributes:
        tables: by number: the exercises whose runs fill the table, conditions on all of its runs, and the sizes that
            its rows compare, also of tiny runs.
        labels: a pattern and the meaning of each.
        predictions: by the question's number the cells that answer it: table, row and column of each.
        more_rows: by a generated table's number the labels of rows that no reference run fills.
    """

    tables: dict[str, tuple[tuple[str, ...], Where, list[str]]]
    labels: list[tuple[re.Pattern, Label]]
    predictions: dict[str, list[tuple[str, str, str]]]
    more_rows: dict[str, list[list[str]]]


def dictionary_of(folder: Path) -> Dictionary:
    """The tables.toml of an exercise; its folder may be given as `.`."""
    return _dictionary((folder / "tables.toml").resolve())


@cache
def _dictionary(path: Path) -> Dictionary:
    """Raises InputError: it is no TOML, or a label names an unknown figure or condition."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: {error}") from error

    def where(label: str, written: dict) -> Where:
        """Conditions as TOML has them: a value, { not = [values] } or { unset = true }."""
        if unknown := [key for key in written if key != "offload" and not is_fact(key)]:
            raise InputError(f"{path}: {label!r}: unknown condition {unknown[0]!r}; see `fact` in tools/logs/run.py")
        return {
            key: wanted if not isinstance(wanted, dict) else NoneOf(wanted["not"]) if "not" in wanted else None
            for key, wanted in written.items()
        }

    tables, labels = {}, []
    for block in content.get("tables", []):
        exercises, shared = block.pop("exercises", [path.parent.name]), block.pop("where", {})
        compares = block.pop("compares", [])
        tables |= {number: (tuple(exercises), where(number, shared | own), compares) for number, own in block.items()}
    for label, means in content.get("labels", {}).items():
        figure = means.pop("figure", None)
        if figure not in (None, *FIGURES):
            raise InputError(f"{path}: {label!r}: unknown figure {figure!r}; `python -m tools fill --explain` has all")
        labels.append((_pattern(label), Label(FIGURES.get(figure), where(label, means))))
    predictions = {
        question: [cell for place in places for cell in cells_named(place)]
        for question, places in content.get("predictions", {}).items()
    }
    return Dictionary(tables, labels, predictions, content.get("more_rows", {}))


def _pattern(label: str) -> re.Pattern:
    """The pattern of a label with {conditions} and [parts that may be left out]."""
    found = ""
    for part in re.split(r"(\{\w+\}|[\[\]])", label.casefold()):
        if part.startswith("{"):
            found += f"(?P<{part[1:-1]}>{_FIELDS.get(part[1:-1], _WHOLE)[0]})"
        else:
            found += {"[": "(?:", "]": ")?"}.get(part) or re.escape(part)
    return re.compile(found)


_FIGURE_OF = {normalised(title): one for one in FIGURES.values() for title in (one.title, one.also) if title}


def meaning(folder: Path, label: str) -> Label | None:
    """The meaning of a label of a table in this folder; None for an unknown label. `Tokens/s, std` is of `Tokens/s`."""
    name = normalised(label)
    for dictionary in (dictionary_of(folder), _dictionary(_WORDS)):
        for pattern, found in dictionary.labels:
            if match := pattern.fullmatch(name):
                texts = {key: text for key, text in match.groupdict().items() if text}
                groups = {key: _FIELDS.get(key, _WHOLE)[1](text) for key, text in texts.items()}
                return replace(found, where=found.where | groups)
    figure = _FIGURE_OF.get(name.replace(", std", ""))
    return Label(figure, std=", std" in name) if figure else None


def blank_tables(folder: Path) -> list[Table]:
    """The blank tables of a folder's README.md and RESULTS.md, by their numbers: 9, 10, 10b.

    A table that only a generated block of RESULTS.md has is blank without the figures that it shows. All have what
    the folder's tables.toml says of them.

    Raises:
        InputError: it does not have a table's number.
    """
    paths = [path for path in (folder / "README.md", folder / "RESULTS.md") if path.exists()]
    known, more_rows = dictionary_of(folder).tables, dictionary_of(folder).more_rows
    written = [table for path in paths for table in read_tables(path)]
    found = {table.number: table for table in written if table.blank and not table.generated}
    for table in written:
        if table.generated and table.number in known and table.number not in found:
            found[table.number] = _without_figures(table, more_rows.get(table.number, []))
    if unknown := [table for table in found.values() if table.number not in known]:
        table, numbers = unknown[0], ", ".join(known)
        place = f"{table.path}:{table.header_line}: Table {table.number}"
        raise InputError(f"{place} is unknown; {folder / 'tables.toml'} has the tables {numbers or 'none'}")
    tables = []
    for number, table in found.items():
        exercises, where, compares = known[number]
        asked = Definition(number, table.caption, "", (), partial(_value, table), where, exercises, compares)
        tables.append(replace(table, exercises=exercises, definition=asked))
    return sorted(tables, key=lambda table: (int(re.match(r"\d+", table.number)[0]), table.number))


def _without_figures(table: Table, more_rows: Sequence[list[str]]) -> Table:
    """A filled table as it is to be filled: a cell is blank if a label of its row or column names a figure.

    `more_rows` come last, or after the rows with the same first label; as their line they have the header's.
    """

    def named(text: str) -> bool:
        return bool((found := meaning(table.path.parent, text)) and found.figure)

    labels = next((at for at, text in enumerate(table.header) if at and meaning(table.path.parent, text)), 1)
    columns = [named(text) for text in table.header]
    rows = []
    for row in table.rows:
        in_row = any(map(named, row[:labels]))
        rows.append([text if at < labels or not (in_row or columns[at]) else "" for at, text in enumerate(row)])
    lines = [*table.lines]
    for names in more_rows:
        if names not in (row[: len(names)] for row in rows):
            below = max((at for at, row in enumerate(rows, 1) if row[0] == names[0]), default=len(rows))
            rows.insert(below, [*names, *[""] * (len(table.header) - len(names))])
            lines.insert(below, table.header_line)
    return replace(table, rows=rows, lines=lines)


def _value(table: Table, *texts: str) -> tuple[Figure, Where]:
    """The figure and the conditions that the labels of a cell give together.

    Raises:
        InputError: a label means nothing, or a cell's labels give no figure or two; names file, line and label.
    """
    labels = [_label(table, text, table.header_line) for text in texts]
    figures = {one.figure.name: one.figure for one in labels if one.figure}
    if len(figures) != 1:
        given = "no figure" if not figures else f"two figures ({', '.join(sorted(figures))})"
        raise InputError(f"{table.path}:{table.header_line}: the labels {' / '.join(texts)} give {given}")
    (figure,) = figures.values()
    where = reduce(operator.or_, [one.where for one in labels])
    return replace(figure, std=any(one.std for one in labels)), run_conditions(where)


def _label(table: Table, text: str, line: int) -> Label:
    found = meaning(table.path.parent, text)
    if found is None:
        where = table.path.parent / "tables.toml"
        raise InputError(f"{table.path}:{line}: Table {table.number}: nothing fills the label {text!r}; see {where}")
    return found
