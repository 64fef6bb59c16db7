from pathlib import Path

import pytest

from tools.__main__ import main
from tools.commands import check
from tools.tables.repository import table_definitions

README = """**Table 1** *Summary*

| Metric | Value |
|---|---:|
| Train Loss (mean) | |
| Samples/s | |
| Steps per Epoch | |
| F1 (%) | |
"""
RIGHT = ["0.7039", "11.8", "32", "55.12"]


@pytest.fixture
def checked(make_readme, logs, tmp_path, monkeypatch, capsys):
    """Checks a copy of the README with the given values in its cells; gives exit code, output, errors."""
    readme = make_readme(README)
    monkeypatch.setattr(check, "table_definitions", lambda: table_definitions(tmp_path))

    def checked(values: list[str], *options: str, text: str = README, logs: Path | bool = logs) -> tuple[int, str, str]:
        for value in values:
            text = text.replace("| |", f"| {value}|", 1)
        copy = readme.parent.parent / "my_results.md"
        copy.write_text(text)
        code = main(["check", str(copy), *(["--logs", str(logs)] if logs else []), *options])
        return code, *capsys.readouterr()

    return checked


def test_wrong_figure_is_named_with_its_place_and_the_expected_one_is_shown_only_if_asked_for(checked, make_run):
    make_run("r1")
    code, printed, _ = checked(RIGHT)
    assert code == 0 and "4 cells: 4 right, 0 wrong, 0 not filled in" in printed
    assert "tolerance: 2 %, or half a unit of the last digit" in printed
    code, printed, _ = checked(["0.75", *RIGHT[1:]])
    assert code == 1 and "0.7039" not in printed
    assert "my_results.md:5: Table 1, Train Loss (mean), Value: found 0.75: too large\n" in printed
    assert "found 0.75: too large, expected 0.7039\n" in checked(["0.75", *RIGHT[1:]], "--show")[1]
    code, printed, _ = checked([])
    assert code == 1 and "my_results.md:5: Table 1: not filled in\n4 cells: 0 right" in printed


@pytest.mark.parametrize(
    ("value", "verdict", "remark"),
    [
        ("ca. 0.70", "4 right", ""),
        ("0,7039", "4 right", ""),
        ("n/a", "3 right", "not filled in"),
        ("12.5x", "3 right", "found '12.5x': in x, but the column is in no unit"),
        ("0.70 MiB", "3 right", "found '0.70 MiB': in MiB, but the column is in no unit"),
        ("1..2", "3 right", "found '1..2': neither a figure such as 12.5"),
    ],
)
def test_cell_is_read_as_people_write_it(checked, make_run, value, verdict, remark):
    make_run("r1")
    code, printed, _ = checked([value, *RIGHT[1:]])
    assert verdict in printed and code == int(remark.startswith("found '"))
    place = f"my_results.md:5: Table 1, Train Loss (mean), Value: {remark}"
    assert place in printed if remark else ":5:" not in printed


def test_run_that_is_compared_with_is_named_and_can_be_chosen(checked, make_run):
    old = make_run("r1", {"start_time": "2026-11-20T09:00:00+00:00"}, summary={"train_loss": 0.5})
    new = make_run("r2", {"start_time": "2026-11-21T09:00:00+00:00"}, summary={"train_loss": 0.6})
    newest = make_run("r3", {"start_time": "2026-11-22T09:00:00+00:00", "state": "failed"})
    code, printed, _ = checked(["0.6"])
    assert code == 0 and f"Table 1: compared with `{new}`\n  {newest}: newer, but FAILED; {new} is shown\n" in printed
    assert checked(["0.5"])[0] == 1
    code, printed, _ = checked(["0.5"], "--logs", str(old), logs=False)
    assert code == 0 and f"compared with `{old}`\n" in printed


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("# My results\n", "my_results.md: no tables found but in generated blocks"),
        (README.replace("Table 1", "Table 77"), "my_results.md:3: unknown Table 77; the READMEs have 1"),
        (README.replace("Value", "Figure"), "my_results.md:3: the columns of Table 1 are not those of"),
        (README.replace("F1 (%)", "F2 (%)"), "my_results.md:8: the row 'F2 (%)' is not in Table 1 of"),
        (README.replace("F1 (%)", "Steps per Epoch"), "my_results.md:8: the row 'Steps per Epoch' is there twice"),
    ],
)
def test_table_that_is_not_the_readme_s_is_an_error_with_its_line(checked, make_run, text, error):
    make_run("r1")
    code, _, printed = checked([], text=text)
    assert code == 2 and error in printed
