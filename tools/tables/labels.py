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
from functools import cache, reduce
from pathlib import Path

from tools.errors import InputError
from tools.logs.figures import FIGURES, Figure
from tools.logs.run import NoneOf, Where, is_fact
from tools.tables.markdown import Table, cells_named, is_blank, read_tables
from workshop.record.exercises import FURTHER, REPO

# Settings that tiny.env changes: tables of tiny runs have no conditions on them.
SIZES = {
    *("model", "train_examples", "examples_per_gpu", "batch_size", "grad_acc", "examples_per_gpu_step", "max_length"),
    *("precision", "epochs"),
}
TINY_CAPTION_END = " (tiny runs)*"
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
        tiny: the label in a table about tiny runs: without the size that it names.
    """

    figure: Figure | None = None
    where: Where = field(default_factory=dict)
    std: bool = False
    tiny: str = ""


@dataclass(frozen=True)
class Dictionary:
    """A tables.toml.

    Attributes:
        tables: by number: the exercises whose runs fill the table, and conditions on all of its runs.
        labels: a pattern for each, the label as written there, its meaning.
        predictions: by the question's number the cells that answer it: table, row and column of each.
        more_rows: by a generated table's number the labels of rows that no reference run fills.
    """

    tables: dict[str, tuple[tuple[str, ...], Where]]
    labels: list[tuple[re.Pattern, str, Label]]
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
        tables |= {number: (tuple(exercises), where(number, shared | own)) for number, own in block.items()}
    for label, means in content.get("labels", {}).items():
        figure = means.pop("figure", None)
        if figure not in (None, *FIGURES):
            raise InputError(f"{path}: {label!r}: unknown figure {figure!r}; `python -m tools fill --explain` has all")
        labels.append((_pattern(label), label, Label(FIGURES.get(figure), where(label, means))))
    predictions = {
        question: [cell for place in places for cell in cells_named(place)]
        for question, places in content.get("predictions", {}).items()
    }
    return Dictionary(tables, labels, predictions, content.get("more_rows", {}))


def _pattern(label: str) -> re.Pattern:
    """The pattern of a label with {conditions} and [sizes]; tables of tiny runs omit sizes."""
    found = ""
    for part in re.split(r"(\{\w+\}|[\[\]])", label.casefold()):
        if part.startswith("{"):
            found += f"(?P<{part[1:-1]}>{_FIELDS.get(part[1:-1], _WHOLE)[0]})"
        else:
            found += {"[": "(?:", "]": ")?"}.get(part) or re.escape(part)
    return re.compile(found)


def normalised(label: str) -> str:
    """A label as it is looked up: markup, case and spacing do not change its meaning."""
    return " ".join(re.sub(r"[*`]|(?<!\w)_|_(?!\w)", "", label).split()).casefold()


_FIGURE_OF = {normalised(label): figure for figure in FIGURES.values() for label in figure.labels}


def meaning(folder: Path, label: str) -> Label | None:
    """The meaning of a label of a table in this folder; None for an unknown label. `Tokens/s, std` is of `Tokens/s`."""
    name = normalised(label)
    for dictionary in (dictionary_of(folder), _dictionary(_WORDS)):
        for pattern, written, found in dictionary.labels:
            if match := pattern.fullmatch(name):
                texts = {key: text for key, text in match.groupdict().items() if text}
                groups = {key: _FIELDS.get(key, _WHOLE)[1](text) for key, text in texts.items()}
                tiny = re.sub(r"\[.*?\]", "", written).format_map(texts) or "tiny" if "[" in written else label
                return replace(found, where=found.where | groups, tiny=tiny)
    figure = _FIGURE_OF.get(name.replace(", std", ""))
    return Label(figure, std=", std" in name, tiny=label) if figure else None


def run_conditions(where: Where) -> Where:
    """Conditions on a run's facts: a stage and whether there is offload are together the name of a configuration."""
    found = {key: wanted for key, wanted in where.items() if key not in ("stage", "offload")}
    if (stage := where.get("stage")) is None:
        return found
    return found | {"config": f"zero{stage}{'_offload' if where.get('offload') else ''}"}


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
    tables = [replace(table, exercises=known[number][0], where=known[number][1]) for number, table in found.items()]
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


def blank_cells(table: Table) -> list[list[Label | None]]:
    """What every blank cell asks for, with a figure; None for other cells.

    Raises:
        InputError: a label means nothing, or a cell's labels give no figure or two; names file, line and label.
    """
    # Runs on a rung are an exercise's runs made faster. A profiler, DeepSpeed's timers and other runs on the GPU make
    # steps slower. Such runs are in no table that does not ask for them.
    shared = {"rung": None, "profiled": False, "timed": False, "shared_gpu": False} | table.where
    if table.tiny:  # of several processes as many as a laptop has, which has no GPU that runs could share
        several = {"world_size": NoneOf([1])} if shared.get("world_size", 1) != 1 else {}
        shared = {key: wanted for key, wanted in shared.items() if key not in {*SIZES, "shared_gpu"}} | several
    shared |= {"tiny": table.tiny}
    count = table.label_columns
    columns = [_label(table, text, table.header_line) for text in table.header[count:]]
    found = []
    for row, line in zip(table.rows, table.lines, strict=True):
        own = [_label(table, text, line) for text in row[:count]]
        cells: list[Label | None] = [None] * count
        for text, title, column in zip(row[count:], table.header[count:], columns, strict=True):
            if not is_blank(text):
                cells.append(None)
                continue
            labels = [*own, column]
            figures = {one.figure.name: one.figure for one in labels if one.figure}
            if len(figures) != 1:
                given = "no figure" if not figures else f"two figures ({', '.join(sorted(figures))})"
                names = " / ".join(map(repr, [*row[:count], title]))
                raise InputError(f"{table.path}:{line}: the labels {names} give {given}")
            where = reduce(operator.or_, [one.where for one in labels], shared)
            cells.append(Label(*figures.values(), where, any(one.std for one in labels)))
        found.append(cells)
    return found


def _label(table: Table, text: str, line: int) -> Label:
    found = meaning(table.path.parent, text)
    if found is None:
        where = table.path.parent / "tables.toml"
        raise InputError(f"{table.path}:{line}: Table {table.number}: nothing fills the label {text!r}; see {where}")
    return found


def tiny_view(table: Table) -> Table:
    """The table for tiny runs (tiny.env): the same figures, without the sizes of the real training.

    Rows and columns that then ask for nothing new are left out.
    """
    labels = table.label_columns
    model = re.compile(re.escape(table.where.get("model") or "(no model)"), re.IGNORECASE)
    # What follows a title's first comma or colon is about the real runs: their GPUs, sizes and repeats.
    title = re.split(": |, ", table.caption.removesuffix("*"))[0]
    names = (", ".join(part for part in text.split(", ") if "examples" not in part) for text in table.header[:labels])
    columns = [model.sub("tiny", name) for name in names]
    columns += [_label(table, text, table.header_line).tiny for text in table.header[labels:]]
    kept = [place for place, text in enumerate(columns) if place < labels or columns.index(text) == place]
    rows: dict[tuple[str, ...], tuple[list[str], int]] = {}
    for row, line in zip(table.rows, table.lines, strict=True):
        names = [_label(table, text, line).tiny for text in row[:labels]]
        rows.setdefault(tuple(names), ([*names, *row[labels:]], line))
    caption = model.sub("tiny", title) + TINY_CAPTION_END
    own_rows, lines = map(list, zip(*rows.values(), strict=True))
    return replace(table, caption=caption, rows=own_rows, lines=lines, tiny=True).with_columns(columns, kept)


def tiny_views(tables: Sequence[Table]) -> list[Table]:
    """The tables for tiny runs, without those that repeat cells of earlier ones."""
    found, known = [], set()
    for view in map(tiny_view, tables):
        cells = {(cell.figure.name, str(cell.where)) for row in blank_cells(view) for cell in row if cell}
        if not cells <= known:
            found.append(view)
            known |= cells
    return found
