"""The cells that a launcher names are those that `fill` shows of the run."""

import pytest

from tests.launching import REPO
from tools.logs.run import Run
from tools.logs.runs import find_runs
from tools.tables.definitions import definitions, tiny_views
from tools.tables.fill import fill
from tools.tables.repository import ROOT
from tools.tables.run_cells import cells_of

REFERENCE = REPO / "logs" / "reference"
HOSTS = ("h200x1", "h200x4", "h200x4-host-f")


def assert_fill_shows_them(run: Run, runs: list[Run]) -> int:
    """Gives how many cells are named."""
    found, _ = cells_of(run.folder, runs)
    for one in found:
        tables = definitions(ROOT / one.folder)
        if one.table.tiny:
            tables = tiny_views(tables)
        (view,) = (view for view in tables if view.number == one.table.number)
        shown = {
            (" / ".join(row[: view.label_columns]), column): cell.text
            for row, cells in zip(view.rows, fill(view, runs).cells, strict=True)
            for column, cell in zip(view.header, cells, strict=True)
            if cell
        }
        assert {(row, column): cell.text for row, column, cell in one.cells}.items() <= shown.items()
    return sum(len(one.cells) for one in found)


@pytest.mark.parametrize("host", HOSTS)
def test_named_cells_are_those_of_fill(host: str) -> None:
    runs = find_runs(REFERENCE / host)
    named: dict[str, int] = {}
    for run in runs:
        exercise = run.record["exercise"]
        named[exercise] = named.get(exercise, 0) + assert_fill_shows_them(run, runs)
    assert named and all(named.values()), named


def test_named_cells_of_a_tiny_run_are_those_of_fill_tiny(make_run, logs) -> None:
    folder = make_run("r", {"model": {"name": "tiny", "hidden_size": 64}})
    runs = find_runs(logs)
    assert assert_fill_shows_them(runs[0], runs)
    found, _ = cells_of(folder, runs)
    assert all(one.table.tiny for one in found)
