"""The cells of the exercises' tables that one completed run fills, as a few lines; or why it fills none."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.errors import InputError
from tools.logs.run import Run
from tools.tables.fill import Cell, FilledTable, definitions, fill, plan
from tools.tables.left_out import left_out
from tools.tables.markdown import Table
from tools.tables.registry import TABLES, run_conditions
from tools.tables.repository import ROOT
from tools.tables.tiny import tiny_views

_MOST_LINES = 4
_WIDTH = 100  # of a line, in characters
_FIGURE_WIDTH = 9  # room for every figure, so that equal runs name the same cells


@dataclass(frozen=True)
class RunCells:
    """What a run fills of a table. Attributes: cells: row's label, column's label, cell."""

    table: Table
    cells: list[tuple[str, str, Cell]]

    @property
    def chapter(self) -> str:
        """The folder whose README has the table."""
        return self.table.path.parent.name

    def line(self, exercise: str) -> str:
        """Such as: Table 11, row "2 GPUs": Samples/s 27.33; Train Runtime (sec) 14.0; and 3 more."""
        rows, columns = ({place[axis] for place in self.cells} for axis in (0, 1))
        if len(rows) == 1:
            where, names = f', row "{self.cells[0][0]}"', [column for _, column, _ in self.cells]
        elif len(columns) == 1:
            where, names = f', column "{self.cells[0][1]}"', [row for row, _, _ in self.cells]
        else:
            where, names = "", [f"{row}, {column}" for row, column, _ in self.cells]
        repeats = max(len(cell.runs) for _, _, cell in self.cells)
        head = f"Table {self.table.number}{' (tiny runs)' if self.table.tiny else ''}"
        head += f" of {self.chapter}" if self.chapter != exercise else ""
        head += where + (f", from {repeats} runs" if repeats > 1 else "")
        fitting, width = 0, len(head)
        for name in names:
            width += len(name) + _FIGURE_WIDTH
            fitting += not fitting or width <= _WIDTH
        figures = [f"{name} {cell.text}" for name, (_, _, cell) in zip(names[:fitting], self.cells, strict=False)]
        more = [f"and {len(names) - fitting} more"] if fitting < len(names) else []
        return f"{head}: {'; '.join([*figures, *more])}"


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
    tables = list(_tables_about(run))
    filled = [fill(table, list(runs), lambda cell: run.matches(run_conditions(cell.where))) for table in tables]
    found = [RunCells(table.table, list(_own(table, run))) for table in filled]
    found = [one for one in found if one.cells]
    return found, "" if found else _why_none(run, tables, filled)


def lines(found: Sequence[RunCells], exercise: str, options: str) -> list[str]:
    """A line for each of the first tables, and one that says where the other cells are; `options`: of `fill`."""
    if len(found) <= _MOST_LINES:
        return [one.line(exercise) for one in found]
    shown, others = found[: _MOST_LINES - 1], found[_MOST_LINES - 1 :]
    count = sum(len(one.cells) for one in others)
    commands = dict.fromkeys(f"python -m tools fill {one.chapter}{options}" for one in others)
    more = f"and {count} more in {len(others)} tables: {', '.join(commands)}"
    return [*(one.line(exercise) for one in shown), more]


def _tables_about(run: Run) -> Iterator[Table]:
    """The tables that the run's exercise fills; other chapters may have some, too."""
    exercise = run.record["exercise"]
    own = ROOT / exercise / "README.md"
    for readme in sorted(ROOT.glob("*/README.md"), key=lambda path: (path != own, path)):
        tables = [table for table in definitions(readme) if table.number in TABLES]
        numbers = {table.number for table in tables if exercise in TABLES[table.number].exercises}
        if numbers and run.facts["tiny"]:
            tables = tiny_views(tables)
        yield from (table for table in tables if table.number in numbers)


def _own(filled: FilledTable, run: Run) -> Iterator[tuple[str, str, Cell]]:
    """The cells with a figure of this run, or of it and its repeats."""
    table = filled.table
    for row, plans, cells in zip(table.rows, plan(table), filled.cells, strict=True):
        for column, about, cell in zip(table.header, plans, cells, strict=True):
            if about and cell and cell.answered and run in cell.runs:
                where = run_conditions(about.where)
                if all(other.matches(where) for other in cell.runs):
                    yield " / ".join(row[: table.label_columns]), column, cell


def _why_none(run: Run, tables: Sequence[Table], filled: Sequence[FilledTable]) -> str:
    if not tables:
        return f"no table is about runs of {run.record['exercise']}"
    if reasons := left_out(tables, [run]):
        return next(iter(reasons))
    cells = [cell for table in filled for row in table.cells for cell in row if cell]
    if words := dict.fromkeys(cell.text for cell in cells if run in cell.runs):
        return ", ".join(words)
    notes = [note for table in filled for note in table.notes if note.startswith(f"{run.folder}: ")]
    return notes[0].removeprefix(f"{run.folder}: ") if notes else "another run is shown"
