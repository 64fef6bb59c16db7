"""The exported frame has the tables' figures, and columns whose types do not depend on the runs."""

import csv
import json
from pathlib import Path

import pandas as pd

import tools
from tests.tools.conftest import figure_or_word
from tools.__main__ import main
from tools.logs.figures import OF_ONE_RUN
from tools.logs.runs import find_runs
from tools.tables import frame
from tools.tables.fill import figure_of

REPO = Path(__file__).parents[3]


def test_frame_s_figures_are_those_that_the_tables_show() -> None:
    folders = [REPO / "logs/reference" / machine for machine in ("h200x1", "h200x2", "h200x4")]
    table = tools.load_runs(*folders).set_index("folder")
    compared = 0
    for run in find_runs(*folders):
        for name, definition in OF_ONE_RUN.items():
            shown, value = figure_of(run, definition), table.loc[str(run.folder), name]
            # What a method can do is asked of several runs; a failed run's cell is its state.
            if name.startswith("shards_") or run.state != "completed":
                continue
            if pd.isna(value):
                assert shown == figure_or_word(run, name)
            elif definition.kind is bool:
                assert shown == ("yes" if value else "no")
            else:
                assert shown == f"{value:,.{definition.decimals}f}", (run.folder, name)
            compared += 1
    assert compared > 5000


def test_types_of_the_columns_do_not_depend_on_the_runs(make_run, logs) -> None:
    make_run("r1", {"state": "failed", "world_size": ..., "model": ...}, summary=None, **{"gpu_memory.csv": None})
    few, many = tools.load_runs(logs), tools.load_runs(REPO / "logs/reference/h200x1")
    plain = [name for name, (kind, _) in frame.FACTS.items() if kind != "category"] + list(OF_ONE_RUN)
    assert few.dtypes[plain].equals(many.dtypes[plain])
    assert list(few["state"].cat.categories) == list(many["state"].cat.categories)
    assert few.columns.is_unique and list(few.columns) == list(many.columns)
    assert all(f"`{column}`" in frame.columns() for column in few.columns)


def test_repeats_are_summarised_by_count_median_least_and_largest(make_run, logs) -> None:
    for repeat, speed in enumerate((10.0, 40.0, 20.0), 1):
        make_run(f"r{repeat}", {"settings": {"repeat": repeat}}, summary={"train/samples_per_second": speed})
    make_run("r4", {"state": "oom"}, summary={"train/samples_per_second": 1.0})
    (row,) = tools.repeats(tools.load_runs(logs), ["model", "config"], ["samples_per_second"]).values.tolist()
    assert row == [3, 20, 10, 40]


def test_runs_are_exported_as_csv_and_json_with_every_figure(make_run, logs, capsys) -> None:
    make_run("r1")
    make_run("r2", {"state": "oom"})
    for form, read in (("csv", lambda text: [*csv.DictReader(text.splitlines())]), ("json", json.loads)):
        assert main(["runs", "--logs", str(logs), "--format", form]) == 0
        rows = read(capsys.readouterr().out)
        assert [(float(row["peak_gpu_mib"]), row["state"]) for row in rows] == [(21658, "completed"), (21658, "oom")]
