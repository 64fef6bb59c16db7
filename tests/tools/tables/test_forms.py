"""Predictions in a form, and the marks of the cells that a participant fills by hand."""

import tomllib
from pathlib import Path

import pytest

from tools.__main__ import main
from tools.tables.fill import fill
from tools.tables.forms import cell_at, questions
from tools.tables.labels import blank_tables, tiny_view
from tools.tables.repository import exercises

TAUGHT = [folder for folder in exercises() if folder.name != "models"]


@pytest.mark.parametrize("folder", TAUGHT, ids=lambda folder: folder.name)
def test_figures_beside_the_predictions_are_cells_of_the_exercise_also_of_tiny_runs(folder: Path) -> None:
    named = tomllib.loads((folder / "tables.toml").read_text()).get("predictions", {})
    assert named.keys() <= {str(number) for number in range(1, len(questions(folder)) + 1)}
    tables = {table.number: table for table in blank_tables(folder)}
    for number, row, column in (place.split(" | ") for places in named.values() for place in places):
        assert cell_at(fill(tables[number], []), row, column), (number, row, column)
        assert cell_at(fill(tiny_view(tables[number]), []), row, column), (number, row, column)


def test_check_asks_for_the_marked_cells_and_shows_predictions(make_run, logs, tmp_path, capsys) -> None:
    make_run("r1")
    form = tmp_path / "my_results.md"
    assert main(["fill", "baseline", "--blank"]) == 0
    text = capsys.readouterr().out
    for cell, figure in (("500 examples have?", 125), ("train on?", 20), ("| Steps per Epoch", 32)):
        text = text.replace(f"{cell} | ? |", f"{cell} | {figure} |")
    form.write_text(text)
    assert main(["check", str(form), "--logs", str(logs)]) == 0
    printed = capsys.readouterr().out
    assert "Table 1, Eval Loss (Epoch 1), Value: not filled in" in printed
    assert "F1 (%)" not in printed and "Table 2b: not filled in" not in printed
    assert "13 cells: 1 right, 0 wrong, 12 not filled in" in printed
    assert "prediction 1: 125\n  Table 1, Steps per Epoch, Value: 32\n" in printed
    assert "prediction 3: 20\n  Table 1, Trainer's samples/s, Value: first read it\n" in printed
    assert "prediction 2" not in printed
    main(["check", str(form), "--logs", str(logs), "--show"])
    assert "prediction 3: 20\n  Table 1, Trainer's samples/s, Value: 11.50\n" in capsys.readouterr().out
