"""The cells that a launcher names are those that `fill` shows of the run."""

from tests.launching import REPO
from tools.logs.runs import find_runs
from tools.tables.definitions import definitions
from tools.tables.fill import fill
from tools.tables.repository import ROOT
from tools.tables.run_cells import cells_of


def test_named_cells_are_those_of_fill() -> None:
    runs = find_runs(REPO / "logs/reference/h200x4")
    named = 0
    for run in runs:
        for one in cells_of(run.folder, runs)[0]:
            (table,) = (table for table in definitions(ROOT / one.folder) if table.number == one.table.number)
            shown = {
                (" / ".join(row[: table.label_columns]), column): cell.text
                for row, cells in zip(table.rows, fill(table, runs).cells, strict=True)
                for column, cell in zip(table.header, cells, strict=True)
                if cell
            }
            assert {(row, column): cell.text for row, column, cell in one.cells}.items() <= shown.items()
            named += len(one.cells)
    assert named > 50
