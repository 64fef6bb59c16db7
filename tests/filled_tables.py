"""The tables of a README, filled as `python -m tools fill` does it."""

from pathlib import Path

from tools.logs.runs import find_runs
from tools.tables import fill as tables
from tools.tables.table import blank_tables


def filled_table(exercise: Path, number: str, *logs: Path, tiny: bool = False) -> dict[str, dict[str, str]]:
    """The figures of a README's table from the runs below `logs`, by row label (labels) and column."""
    (table,) = (table for table in blank_tables(exercise, tiny) if table.number == number)
    found: dict[str, dict[str, str]] = {}
    filled = tables.fill(table, [run for folder in logs for run in find_runs(folder)])
    for (*labels, column), cell in filled.cells.items():
        found.setdefault(" / ".join(labels), {})[column] = cell.text
    return found
