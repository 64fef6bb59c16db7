"""The cells that a launcher names are those that `fill` shows of the run."""

import pytest

from tools.logs.runs import find_runs
from tools.rehearsal.demos import RUNS
from tools.tables import tiny
from tools.tables.fill import definitions, fill
from tools.tables.repository import ROOT
from tools.tables.run_cells import cells_of, lines

KEPT = find_runs(RUNS)


@pytest.mark.parametrize("run", KEPT, ids=lambda run: f"{run.record['exercise']}-{run.folder.name}")
def test_named_cells_are_those_of_fill(run) -> None:
    found, _ = cells_of(run.folder, KEPT)
    assert found
    for one in found:
        views = tiny.tiny_views(definitions(ROOT / one.chapter / "README.md"))
        (view,) = (view for view in views if view.number == one.table.number)
        shown = {
            (" / ".join(row[: view.label_columns]), column): cell.text
            for row, cells in zip(view.rows, fill(view, KEPT).cells, strict=True)
            for column, cell in zip(view.header, cells, strict=True)
            if cell
        }
        assert {(row, column): cell.text for row, column, cell in one.cells}.items() <= shown.items()


def test_line_fits_a_terminal_and_names_the_same_cells_whatever_was_measured() -> None:
    for run in KEPT:
        found, _ = cells_of(run.folder, KEPT)
        told = lines(found, run.record["exercise"], " --tiny")
        assert all(len(line) < 120 for line in told if "python -m tools" not in line)
        for one in found:
            for _, _, cell in one.cells:
                object.__setattr__(cell, "text", "1,234,567.0")
        longer = lines(found, run.record["exercise"], " --tiny")
        for before, after in zip(told, longer, strict=True):
            assert before.count("; ") == after.count("; ")
