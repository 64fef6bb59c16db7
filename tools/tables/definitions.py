"""Reads the tables of an exercise: its tables.py, with the marks that the blank tables of its documents have."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from tools.logs.figures import Figure
from tools.logs.run import NoneOf, Where
from tools.tables import labels, markdown
from tools.tables.markdown import EXTRA, cells_named, is_blank, read_tables
from tools.tables.table import Table

# Settings that tiny.env changes: a tiny run meets every condition on them.
SIZES = {
    *("model", "train_examples", "examples_per_gpu", "batch_size", "grad_acc", "examples_per_gpu_step", "max_length"),
    *("precision", "epochs"),
}


def blank_tables(folder: Path) -> list[markdown.Table]:
    """The tables of an exercise's tables.py, each cell blank or the mark or text that it has before it is filled."""
    if not (folder / "tables.py").exists():
        return labels.blank_tables(folder)
    written = {
        table.number: table
        for path in (folder / "README.md", folder / "RESULTS.md")
        for table in (read_tables(path) if path.exists() else [])
        if table.blank and not table.generated
    }
    return [_blank(folder, table, written.get(table.number)) for table in _module(folder).TABLES]


def predictions(folder: Path) -> dict[str, list[tuple[str, ...]]]:
    """By the number of each question in *Predict* the cells that answer it: table, row and column of each."""
    if not (folder / "tables.py").exists():
        return labels.dictionary_of(folder).predictions
    asked = getattr(_module(folder), "PREDICTIONS", {})
    return {question: [cell for place in places for cell in cells_named(place)] for question, places in asked.items()}


def _module(folder: Path) -> ModuleType:
    spec = spec_from_file_location(f"tables of {folder.name}", folder / "tables.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _blank(folder: Path, table: Table, written: markdown.Table | None) -> markdown.Table:
    """The table with empty cells, or with the marks of a blank one in a document: a row that it leaves out is extra."""
    marks = {tuple(row[: written.label_columns]): row for row in written.rows} if written else {}
    rows, figures = [], {}
    for labels_of_row in table.labels:
        count = len(labels_of_row)
        own = marks.get(labels_of_row, [EXTRA if written else ""] * len(table.columns))
        row = [*labels_of_row]
        for column, mark in zip(table.columns[count:], own[count:], strict=True):
            asked = table.value(*labels_of_row, column)
            row.append(asked if isinstance(asked, str) else mark)
            figures.setdefault(column, []).extend([] if isinstance(asked, str) else [asked[0].decimals])
        rows.append(row)
    right = [any(isinstance(decimals, int) for decimals in figures.get(column, [])) for column in table.columns]
    return markdown.Table(
        written.path if written else folder / "RESULTS.md",
        table.number,
        f"**Table {table.number}** *{table.title}*",
        table.columns,
        f"|{'|'.join('---:' if number else '---' for number in right)}|",
        rows,
        lines=[0] * len(rows),
        header_line=0,
        definition=table,
        exercises=tuple(table.exercises) or (folder.resolve().name,),
    )


def blank_cells(table: markdown.Table) -> list[list[tuple[Figure, Where] | None]]:
    """What every blank cell asks for; None for other cells."""
    asked = table.definition
    # Runs on a rung are an exercise's runs made faster. A profiler, DeepSpeed's timers and other runs on the GPU make
    # steps slower. Such runs are in no table that does not ask for them.
    shared = {"rung": None, "profiled": False, "timed": False, "shared_gpu": False} | asked.where
    if table.tiny:  # of several processes as many as a laptop has, which has no GPU that runs could share
        del shared["shared_gpu"]
        shared |= {"world_size": NoneOf([1])} if shared.get("world_size", 1) != 1 else {}
    shared |= {"tiny": table.tiny}
    dropped = SIZES.difference(asked.compares) if table.tiny else ()
    found = []
    for row in table.rows:
        count = table.label_columns
        cells: list[tuple[Figure, Where] | None] = [None] * len(row)
        for at in range(count, len(row)):
            if is_blank(row[at]):
                figure, where = asked.value(*row[:count], table.header[at])
                where = shared | where
                cells[at] = figure, {name: wanted for name, wanted in where.items() if name not in dropped}
        found.append(cells)
    return found


def titles(table: markdown.Table) -> dict[str, list[str]]:
    """By a figure's name its titles in the table: the column's, or the row's where a column shows several figures."""
    rows = blank_cells(table)
    found: dict[str, list[str]] = {}
    for at, column in enumerate(table.header):
        shown = {cells[at][0].name for cells in rows if cells[at]}
        for row, cells in zip(table.rows, rows, strict=True):
            if cells[at]:
                title = column if len(shown) == 1 else row[0]
                names = found.setdefault(cells[at][0].name, [])
                names += [title] if title not in names else []
    return found
