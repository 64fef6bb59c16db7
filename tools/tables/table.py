"""The tables of an exercise: rows and columns from its documents, what they ask for from its tables.py.

There TABLES has each table by its number. In most tables a column is a figure and a row says of which runs:

    TABLES = {"10": Table(of_rows(STRATEGIES))}

Otherwise a function gives for the labels of a row and a column a figure and conditions on the runs it is from.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from tools.errors import InputError
from tools.logs.figures import Figure
from tools.logs.run import NoneOf, Run, Where
from tools.tables.comparisons import FIGURES
from tools.tables.markdown import Grid, Place, cells_named, is_blank, read_tables
from workshop.record.exercises import REPO, exercises_with, find_exercise

Asked = tuple[Figure, Where]  # what a cell asks for: a figure, and conditions on the runs it is from

# Settings that tiny.env changes: a tiny run meets every condition on them.
SIZES = {
    *("model", "train_examples", "examples_per_gpu", "batch_size", "grad_acc", "examples_per_gpu_step", "max_length"),
    *("precision", "epochs"),
}
_BY_TITLE = {title.casefold(): known for known in FIGURES.values() for title in known.titles}
_EMPTY = Run(Path())


@dataclass(frozen=True)
class Table:
    """What a table asks for; its rows and columns are those of the documents.

    Attributes:
        value: from the labels of a row and a column to what the cell there asks for; None for a text.
        where: conditions on all of its runs.
        exercises: whose runs fill it; by default its own exercise's.
        compares: sizes that its rows compare, also of tiny runs.
        label_columns: how many columns label a row.
    """

    value: Callable[..., Asked | None]
    where: Where = field(default_factory=dict)
    exercises: Sequence[str] = ()
    compares: Sequence[str] = ()
    label_columns: int = 1


def of_row(title: str, _: str) -> Asked:
    """For a table whose rows are figures, all of the same runs."""
    return figure(title), runs()


def of_rows(chosen: Mapping[str, Where] | Callable[..., Where], texts: Sequence[str] = ()) -> Callable:
    """For a table whose columns are figures.

    Args:
        chosen: by a row's label the conditions on its runs, or a function that gives them for the row's labels.
        texts: columns without figures.
    """
    conditions = chosen if callable(chosen) else chosen.__getitem__

    def value(*labels: str) -> Asked | None:
        *row, column = labels
        return None if column in texts else (figure(column), conditions(*row))

    return value


def figure(title: str) -> Figure:
    """The figure with this title; `Tokens/s, std` is the standard deviation of `Tokens/s` over the repeats.

    Raises:
        KeyError: there is none.
    """
    known = _BY_TITLE[title.casefold().replace(", std", "")]
    return replace(known, std=True) if ", std" in title else known


def runs(**conditions: Any) -> Where:
    """Conditions on facts of runs (`Run.fact`).

    Raises:
        AttributeError: a run has no such fact.
    """
    for name in conditions:
        _EMPTY.fact(name)
    return conditions


def count(label: str) -> Where:
    """The runs on as many GPUs or nodes as a label says: `4 GPUs`, `1 node`."""
    number, unit = label.split()
    return runs(nodes=int(number)) if unit.startswith("node") else runs(world_size=int(number))


def strategy(label: str) -> Where:
    """The runs of `DDP`, `ZeRO-2`, `Stage 3 + offload, tuned`, `FULL_SHARD + offload`, `tuning/leaf` or `NAME.json`.

    Raises:
        KeyError: no exercise has this configuration.
    """
    if label == "DDP":
        return runs(method="ddp")
    name = label.removeprefix("tuning/").removesuffix(".json").lower().replace(" + ", "_")
    if stage := re.fullmatch(r"(?:Stage |ZeRO-)(\d)( \+ offload)?(?:, (\w+))?", label):
        name = "_".join(filter(None, (f"zero{stage[1]}", stage[2] and "offload", stage[3])))
    if name not in _configs():
        raise KeyError(label)
    return runs(config=name)


@cache
def _configs() -> set[str]:
    return {path.stem for folder in exercises_with("tables.py") for path in folder.rglob("*.json")}


def batch(label: str) -> Where:
    """The runs with a micro-batch, an accumulation and a precision: `4 x 4, fp16`."""
    rows, accumulation, precision = re.fullmatch(r"(\d+) x (\d+), (\w+)", label).groups()
    return runs(batch_size=int(rows), grad_acc=int(accumulation), precision=precision)


def config_and_batch(config: str, sizes: str) -> Where:
    """The runs of a row with two labels: `Stage 2 + offload`, `4 x 4, fp16`."""
    return strategy(config) | batch(sizes)


# ---- read with their documents ----


def blank_tables(folder: Path, tiny: bool = False) -> list[Grid]:
    """The tables of an exercise, by their numbers: 9, 10, 10b, with all rows and columns, blank.

    RESULTS.md has all, in generated blocks; a new row is written there without figures. README.md marks what a
    participant fills in.

    Raises:
        KeyError: tables.py does not know a table's number, or a label.
        InputError: RESULTS.md has a table without a row or a column of README.md's.
    """
    paths = [path for path in (folder / "RESULTS.md", folder / "README.md") if path.exists()]
    known, by_number = tables_py(folder).TABLES, {}
    for table in (table for path in paths for table in read_tables(path) if table.blank or table.generated):
        asked = known[table.number]
        asked = replace(asked, exercises=asked.exercises or [folder.resolve().name])
        table = replace(table.marked_for(tiny), definition=asked)
        if table.generated:  # None is asked of a text, which stays
            table = table.with_texts({place: "" for place in table.texts if asked.value(*place)})
        if table.number in by_number:
            table = by_number[table.number].with_marks_of(table)
        by_number[table.number] = table
    return sorted(by_number.values(), key=lambda table: (int(re.match(r"\d+", table.number)[0]), table.number))


def form_tables(folder: Path, tiny: bool) -> list[Grid]:
    """The tables that a participant fills in: the README's, or where it has none all."""
    every = blank_tables(folder, tiny)
    by_number = {table.number: table for table in every}
    written = [table for table in read_tables(folder / "README.md") if table.blank]
    tables = [replace(table.marked_for(tiny), definition=by_number[table.number].definition) for table in written]
    return tables or every


def predictions(folder: Path) -> dict[str, list[tuple[str, ...]]]:
    """By the number of each question in *Predict* the cells that answer it: table, row and column of each."""
    asked = getattr(tables_py(folder), "PREDICTIONS", {})
    return {question: [cell for place in places for cell in cells_named(place)] for question, places in asked.items()}


def tables_py(folder: Path) -> ModuleType:
    """The exercise's tables.py, which no package holds."""
    spec = spec_from_file_location(f"tables of {folder.name}", folder / "tables.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def blank_cells(table: Grid) -> dict[Place, Asked]:
    """What every blank cell asks for."""
    asked = table.definition
    # Runs on a rung are an exercise's runs made faster. A profiler, DeepSpeed's timers and other runs on the GPU make
    # steps slower. Weights in bf16 learn less. Such runs are in no table that does not ask for them.
    usual = {"rung": None, "profiled": False, "timed": False, "shared_gpu": False, "weights": NoneOf(["bf16"])}
    shared = usual | asked.where
    if table.tiny:  # of several processes as many as a laptop has, which has no GPU that runs could share
        del shared["shared_gpu"]
        shared |= {"world_size": NoneOf([1])} if shared.get("world_size", 1) != 1 else {}
    shared |= {"tiny": table.tiny}
    dropped = SIZES.difference(asked.compares) if table.tiny else ()

    cells = {}
    for place in (place for place, text in table.texts.items() if is_blank(text)):
        figure, where = asked.value(*place)
        cells[place] = figure, {name: wanted for name, wanted in (shared | where).items() if name not in dropped}
    return cells


def exercise_folder(name: str) -> Path:
    """The exercise's folder, named as `lora`, `further/lora` or by a path.

    Raises:
        InputError: there is no such folder with a README.md.
    """
    if folder := find_exercise(name, "README.md"):
        return folder
    names = ", ".join(folder.name for folder in exercises_with("tables.py"))
    raise InputError(f"{name} is no folder with a README.md; the exercises are: {names}")


def table_definitions(tiny: bool = False, root: Path = REPO) -> dict[str, Grid]:
    """The blank table of each number."""
    every = (table for folder in exercises_with("tables.py", root) for table in blank_tables(folder, tiny))
    return {table.number: table for table in every}
