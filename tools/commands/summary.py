"""Summarise one run: loss, speed, peak memory, the cells of tables that it fills, the next command."""

import argparse
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from tools.commands.options import single_run
from tools.commands.runs import next_command, tiny_option
from tools.errors import InputError
from tools.logs.figures import FIGURES, figure
from tools.logs.run import Run
from tools.logs.runs import find_runs
from tools.tables.fill import Cell, FilledTable, fill, why_in_no_table
from tools.tables.labels import blank_cells, blank_tables, run_conditions, tiny_views
from tools.tables.markdown import Table
from tools.tables.repository import ROOT, exercises
from workshop.run_folder.printable import one_line

_MOST_TABLES = 3  # that are shown

# Per line the figures, each with the words around it.
_LINES = {
    "loss": (("last_loss", "{} in the last tenth of the steps"), ("eval_loss_final", "{} in the last evaluation")),
    "speed": (("samples_per_second", "{}"), ("step_time_ms", "{} per step")),
    "peak memory": (
        ("peak_gpu_mib", "{} of GPU memory"),
        ("peak_cpu_pss_mib", "{} of CPU memory (PSS)"),
        ("peak_cpu_mib", "{} of CPU memory (RSS)"),
    ),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=Path, metavar="RUN_FOLDER", help="such as logs/baseline/20261121-094500-j4711")


def run(arguments: argparse.Namespace) -> int:
    run = single_run(arguments.run)
    for name, parts in _LINES.items():
        figures = [(FIGURES[one], figure(run, one), words) for one, words in parts]
        told = [words.format(one.written(value, False)) for one, value, words in figures if value is not None]
        if told or run.state == "completed":
            print(f"{name}: {', '.join(told) or 'not measured'}")
    options = _elsewhere(run.folder)
    chapter = _print_cells(run, options) if run.state == "completed" else ""
    print(f"evidence: {run.folder}")
    if hint := next_command([run], options, chapter):
        print(f"next: {hint}")
    return 0


def _print_cells(run: Run, options: str) -> str:
    """The cells that the run fills, or why it fills none; gives the folder whose tables they are in."""
    try:
        runs = find_runs(run.folder.resolve().parents[1])
        found, why_none = cells_of(run.folder.resolve(), runs)
    except Exception as error:  # the run has completed, whatever is wrong with the tables
        what = str(error) if isinstance(error, (InputError, OSError)) else repr(error)
        print(f"warning: the cells it fills are not known: {one_line(what)}", file=sys.stderr)
        return ""
    for table, ((row, column, cell), *others) in found[:_MOST_TABLES]:
        more = f"; and {len(others)} more" if others else ""
        tiny = " (tiny runs)" if table.tiny else ""
        print(f"cells: Table {table.number}{tiny} of {table.path.parent.name}: {row}, {column} {cell.text}{more}")
    folders = [table.path.parent.name for table, _ in found]
    if rest := folders[_MOST_TABLES:]:
        commands = dict.fromkeys(f"python -m tools fill {folder}{options}{tiny_option(run)}" for folder in rest)
        print(f"cells: more in {len(rest)} tables: {', '.join(commands)}")
    if not found:
        print(f"cells: none: {why_none}")
    exercise = run.record.exercise
    return exercise if not found or exercise in folders else folders[0]


def cells_of(folder: Path, runs: Sequence[Run]) -> tuple[list[tuple[Table, list[tuple[str, str, Cell]]]], str]:
    """What `fill` shows of the run in a folder, the tables of its own exercise first; and if it is nothing, why.

    Cells that compare runs are left out.

    Args:
        runs: all of its logs folder, oldest first.

    Returns:
        Tables, each with row's label, column's label and cell; the reason.

    Raises:
        InputError: a table cannot be read, or the run is not among these.
    """
    run = next((one for one in runs if one.folder == folder), None)
    if run is None:
        raise InputError(f"{folder}: not found in {folder.parents[1]}; expected LOGS/EXPERIMENT/RUN")
    tables = _tables_about(run)
    filled = [fill(table, list(runs), lambda cell: run.matches(run_conditions(cell.where))) for table in tables]
    found = [(one.table, cells) for one in filled if (cells := list(_own(one, run)))]
    return found, "" if found else _why_none(run, tables, filled)


def _tables_about(run: Run) -> list[Table]:
    """Those that the run's exercise fills; other exercises may have some, too."""
    exercise, found = run.record.exercise, []
    for folder in sorted(exercises(), key=lambda path: path.name != exercise):
        tables = tiny_views(blank_tables(folder)) if run.tiny else blank_tables(folder)
        found += [table for table in tables if exercise in table.exercises]
    return found


def _own(filled: FilledTable, run: Run) -> Iterator[tuple[str, str, Cell]]:
    """The cells with a figure of this run, or of it and its repeats."""
    table = filled.table
    for row, blanks, cells in zip(table.rows, blank_cells(table), filled.cells, strict=True):
        for column, about, cell in zip(table.header, blanks, cells, strict=True):
            if about and cell and cell.value is not None and run in cell.runs:
                where = run_conditions(about.where)
                if all(other.matches(where) for other in cell.runs):
                    yield " / ".join(row[: table.label_columns]), column, cell


def _why_none(run: Run, tables: Sequence[Table], filled: Sequence[FilledTable]) -> str:
    if not tables:
        return f"no table is about runs of {run.record.exercise}"
    (reason,) = why_in_no_table(tables, [run])
    if reason:
        return reason
    about = f"{run.folder}: "
    notes = (note.removeprefix(about) for table in filled for note in table.notes if note.startswith(about))
    return next(notes, "another run is shown")


def _elsewhere(run: Path) -> str:
    """--logs, unless the next command looks there anyway; a snapshot of the code lies there too."""
    logs = run.resolve().parents[1]
    return "" if logs == ROOT / "logs" or logs in ROOT.parents else f" --logs {shlex.quote(str(logs))}"
