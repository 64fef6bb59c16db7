"""A participant's file is checked, and a class is graded."""

import csv
import os
import pwd
from pathlib import Path

import pytest

from tests.tools.conftest import SUMMARY
from tools.__main__ import main
from tools.commands import check
from tools.logs.runs import REFERENCE
from tools.tables.table import table_definitions

README = """**Table 1** *Summary*

| Metric | Value |
|---|---:|
| Train Loss (mean) | |
| Samples/s | |
| Steps per Epoch | |
| Evaluation samples/s | |
"""
RIGHT = ["0.7039", "11.8", "32", "39.4"]


@pytest.fixture
def written(make_readme, tmp_path, monkeypatch):
    """Writes a copy of the README with the given values in its first cells; gives its path."""
    make_readme(README)
    definitions = table_definitions(root=tmp_path)
    monkeypatch.setattr(check, "table_definitions", lambda tiny: definitions)

    def write(name: str, *values: str, text: str = README) -> str:
        for value in values:
            text = text.replace("| |", f"| {value}|", 1)
        (tmp_path / f"{name}.md").write_text(text, encoding="utf-8-sig")
        return str(tmp_path / f"{name}.md")

    return write


@pytest.fixture
def checked(written, logs, capsys):
    """Checks such a copy; gives exit code, output, errors."""

    def checked(values: list[str], *options: str, text: str = README, logs: Path | bool = logs) -> tuple[int, str, str]:
        copy = written("my_results", *values, text=text)
        code = main(["check", copy, *(["--logs", str(logs)] if logs else []), *options])
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


def test_figure_of_a_tiny_model_is_not_printed_and_accepted_as_0(checked, make_run):
    make_run("r1", summary=SUMMARY | {"train_loss": 0.0000192})
    for value, wrong in (("0.0000192", 0), ("0.000019", 0), ("0", 1), ("0.00004", 1)):
        printed = checked([value, *RIGHT[1:]], "--show")[1]
        assert f"4 cells: {4 - wrong} right, {wrong} wrong" in printed
    assert "too large, expected 0.000019" in printed


@pytest.mark.parametrize(
    ("value", "remark"),
    [
        ("0.7172", ""),  # 1.9 %
        ("0.7187", "found 0.7187: too large"),  # 2.1 %
        ("0.6906", ""),
        ("0.6891", "found 0.6891: too small"),
        ("ca. 0.70", ""),
        ("0,7039", ""),
        ("n/a", "not filled in"),
        ("0.70 MiB", "found '0.70 MiB': in MiB, but the column is in no unit"),
        ("1..2", "found '1..2': neither a figure such as 12.5"),
    ],
)
def test_cell_is_read_as_people_write_it_and_may_differ_by_two_percent(checked, make_run, value, remark):
    make_run("r1")
    code, printed, _ = checked([value, *RIGHT[1:]])
    assert code == int(remark.startswith("found ")) and f"4 cells: {3 if remark else 4} right" in printed
    place = f"my_results.md:5: Table 1, Train Loss (mean), Value: {remark}"
    assert place in printed if remark else ":5:" not in printed


def test_run_that_is_compared_with_is_named_and_can_be_chosen(checked, make_run):
    old = make_run("r1", {"start_time": "2026-11-20T09:00:00+00:00"}, summary={"train_loss": 0.5})
    new = make_run("r2", {"start_time": "2026-11-21T09:00:00+00:00"}, summary={"train_loss": 0.6})
    newest = make_run("r3", {"start_time": "2026-11-22T09:00:00+00:00", "state": "failed"})
    code, printed, _ = checked(["0.6"])
    assert code == 0 and f"Table 1: compared with `{new}`\n  {newest}: newer, but FAILED; {new} is shown\n" in printed
    other = make_run("r0", {"start_time": "2026-11-20T08:00:00+00:00", "config": "x"}, summary={"train_loss": 0.4})
    code, printed, _ = checked(["0.5"])
    assert code == 0 and f"Train Loss (mean), Value: found 0.5: right for {old}\n" in printed
    assert checked(["0.4"])[0] == 1, f"{other} has other settings"
    assert checked(["0.55"])[0] == 1
    code, printed, _ = checked(["0.5"], "--logs", str(old), logs=False)
    assert code == 0 and f"compared with `{old}`\n" in printed


def test_speed_of_each_printed_evaluation_is_right_beside_their_mean(checked, make_run):
    """train.out has no mean: who copied a line of it was wrong."""
    line = "{{'eval_loss': '1.3', 'eval_samples_per_second': '{}', 'epoch': '1'}}\n"
    make_run("r1", **{"train.out": line.format(37.2) + line.format(41.6)})
    make_run("r0", {"start_time": "2026-11-01T09:00:00+00:00"}, **{"train.out": line.format(48)})
    for value, wrong in (("39.4", 0), ("37.2", 0), ("41.6", 0), ("48", 0), ("44", 1)):
        assert checked([*RIGHT[:3], value])[0] == wrong, value


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("# My results\n", "my_results.md: no tables found but in generated blocks"),
        (README.replace("Table 1", "Table 77"), "my_results.md:3: unknown Table 77; the READMEs have 1"),
        (README.replace("Value", "Figure"), "my_results.md:3: the columns of Table 1 are not those of"),
        (README.replace("Evaluation", "Eval"), "my_results.md:8: the row 'Eval samples/s' is not in Table 1 of"),
        (
            README.replace("Evaluation samples/s", "Steps per Epoch"),
            "my_results.md:8: the row 'Steps per Epoch' is there twice",
        ),
    ],
)
def test_table_that_is_not_the_readme_s_is_an_error_with_its_line(checked, make_run, text, error):
    make_run("r1")
    code, _, printed = checked([], text=text)
    assert code == 2 and error in printed


def test_columns_of_predicted_memory_are_no_prediction_of_the_reader_s(tmp_path, capsys):
    logs = ["--logs", str(REFERENCE / "h200x2-2026-11-29")]
    assert main(["fill", "further/by-hand", "--only", "21f", "--plain", *logs]) == 0
    (tmp_path / "form.md").write_text(capsys.readouterr().out)
    assert main(["check", str(tmp_path / "form.md"), *logs]) == 0
    assert "prediction" not in capsys.readouterr().out


def test_broken_file_costs_only_its_own_line(written, make_run, logs, tmp_path, capsys):
    make_run("r1")
    right, half = written("ada", *RIGHT), written("bob", "0.9")
    broken, missing = written("eve", text=README.replace("Value", "Figure")), str(tmp_path / "missing.md")
    assert main(["check", right, half, broken, missing, "--logs", str(logs), "--format", "csv"]) == 1
    header, *rows = csv.reader(capsys.readouterr().out.splitlines())
    assert header == ["file", "tables", "right", "wrong", "not filled in", "problem"]
    assert rows[:2] == [[right, "1", "4", "0", "0", ""], [half, "1", "0", "1", "3", ""]]
    assert rows[2][:5] == [broken, "", "", "", ""]
    assert rows[2][5].startswith(f"{broken}:3: the columns of Table 1 are not those of")
    assert rows[3] == [missing, "", "", "", "", f"{missing}: cannot be read as text: No such file or directory"]
    assert main(["grade", right, half, "--logs", str(logs)]) == 1, "the older name"
    shown, said = capsys.readouterr()
    assert "wrong in 1 file: Table 1, Train Loss (mean), Value" in shown and "`grade` is now `check`" in said


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's folder")
def test_file_is_compared_with_the_runs_of_the_user_it_is_named_after_whom_runs_and_page_know(
    written, make_run, logs, tmp_path, capsys, monkeypatch
):
    make_run("r1")
    os.chown(make_run("r2", {"start_time": "2026-11-21T09:50:00+00:00"}, {"train_loss": 0.6}), 54321, -1)
    root = pwd.getpwuid(0).pw_name
    mine, theirs, nobody = written(root, *RIGHT), written("54321", "0.6"), written("my_results", "0.6")
    assert main(["check", mine, theirs, "--logs", str(logs)]) == 0
    assert main(["check", nobody, "--format", "csv", "--logs", str(logs)]) == 1
    assert f"named after no owner of runs; expected one of 54321.md, {root}.md" in capsys.readouterr().out
    assert main(["runs", "--logs", str(logs)]) == 0
    assert {root, "54321"} < set(capsys.readouterr().out.split())
    monkeypatch.setenv("LOG_DIR", str(tmp_path))
    monkeypatch.setattr("tools.commands.page.REFERENCE", tmp_path / "none")  # hundreds of runs take a while
    assert main(["page", "--logs", str(logs)]) == 0
    assert all(f"<td>{name}</td>" in (tmp_path / "page/index.html").read_text() for name in (root, "54321"))
