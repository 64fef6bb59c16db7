"""The cells of the exercises' tables that one completed run fills, as a few lines; or why it fills none."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.errors import InputError
from tools.logs.run import Run
from tools.tables.definitions import definitions, exercises_of, plan, run_conditions, tiny_views
from tools.tables.fill import Cell, FilledTable, fill, why_in_no_table
from tools.tables.markdown import Table
from tools.tables.repository import exercises

_MOST_TABLES = 3  # that are shown


@dataclass(frozen=True)
class RunCells:
    """What a run fills of a table. Attributes: cells: row's label, column's label, cell."""

    table: Table
    cells: list[tuple[str, str, Cell]]

    @property
    def folder(self) -> str:
        """The exercise that has the table."""
        return self.table.path.parent.name

    def line(self) -> str:
        """Such as: Table 11 of fsdp: 2 GPUs, Samples/s 27.33; and 3 more."""
        (row, column, cell), *others = self.cells
        more = f"; and {len(others)} more" if others else ""
        tiny = " (tiny runs)" if self.table.tiny else ""
        return f"Table {self.table.number}{tiny} of {self.folder}: {row}, {column} {cell.text}{more}"


def cells_of(folder: Path, runs: Sequence[Run]) -> tuple[list[RunCells], str]:
    """What `fill` shows of the run in a folder, the tables of its own exercise first; and if it is nothing, why.

    Cells that compare runs are left out.

    Args:
        runs: all of its logs folder, oldest first.

    Raises:
        InputError: a table cannot be read, or the run is not among these.
    """
    run = next((one for one in runs if one.folder == folder), None)
    if run is None:
        raise InputError(f"{folder}: not found in {folder.parents[1]}; expected LOGS/EXPERIMENT/RUN")
    tables = _tables_about(run)
    filled = [fill(table, list(runs), lambda cell: run.matches(run_conditions(cell.where))) for table in tables]
    found = [RunCells(table.table, list(_own(table, run))) for table in filled]
    found = [one for one in found if one.cells]
    return found, "" if found else _why_none(run, tables, filled)


def cell_lines(found: Sequence[RunCells], options: str) -> list[str]:
    """A line for each of the first tables, and one that says where the other cells are; `options`: of `fill`."""
    others = found[_MOST_TABLES:]
    commands = dict.fromkeys(f"python -m tools fill {one.folder}{options}" for one in others)
    more = [f"more in {len(others)} tables: {', '.join(commands)}"] if others else []
    return [*(one.line() for one in found[:_MOST_TABLES]), *more]


def _tables_about(run: Run) -> list[Table]:
    """Those that the run's exercise fills; other exercises may have some, too."""
    exercise, found = run.record["exercise"], []
    for folder in sorted(exercises(), key=lambda path: path.name != exercise):
        tables = tiny_views(definitions(folder)) if run.facts["tiny"] else definitions(folder)
        found += [table for table in tables if exercise in exercises_of([table])]
    return found


def _own(filled: FilledTable, run: Run) -> Iterator[tuple[str, str, Cell]]:
    """The cells with a figure of this run, or of it and its repeats."""
    table = filled.table
    for row, plans, cells in zip(table.rows, plan(table), filled.cells, strict=True):
        for column, about, cell in zip(table.header, plans, cells, strict=True):
            if about and cell and cell.value is not None and run in cell.runs:
                where = run_conditions(about.where)
                if all(other.matches(where) for other in cell.runs):
                    yield " / ".join(row[: table.label_columns]), column, cell


def _why_none(run: Run, tables: Sequence[Table], filled: Sequence[FilledTable]) -> str:
    if not tables:
        return f"no table is about runs of {run.record['exercise']}"
    (reason,) = why_in_no_table(tables, [run])
    if reason:
        return reason
    about = f"{run.folder}: "
    notes = (note.removeprefix(about) for table in filled for note in table.notes if note.startswith(about))
    return next(notes, "another run is shown")
