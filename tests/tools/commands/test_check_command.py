import pytest

from tools.__main__ import main
from tools.commands import check
from tools.tables.repository import table_definitions

README = """**Table 1** *Summary*

| Metric | Value |
|---|---|
| Train Loss (Final) | |
| Training Speed (samples/sec) | |
| Steps per Epoch | |
| F1 (%) | |
"""
RIGHT = ["0.7039", "11.8", "32", "55.12"]


@pytest.fixture
def checked(make_readme, make_run, logs, tmp_path, monkeypatch, capsys):
    """Checks a copy of the README with the given values in its cells; gives exit code, output, errors."""
    readme = make_readme(README)
    monkeypatch.setattr(check, "table_definitions", lambda: table_definitions(tmp_path))

    def checked(values: list[str], *options: str, text: str = README) -> tuple[int, str, str]:
        for value in values:
            text = text.replace("| |", f"| {value}|", 1)
        copy = readme.parent.parent / "my_results.md"
        copy.write_text(text)
        code = main(["check", str(copy), "--logs", str(logs), *options])
        return code, *capsys.readouterr()

    return checked


def test_right_figures_pass_and_the_tolerance_is_stated(checked, make_run):
    make_run("r1")
    code, printed, _ = checked(RIGHT)
    assert code == 0
    assert "4 cells: 4 right, 0 wrong, 0 not filled in" in printed
    assert "tolerance: 2 %, or half a unit of the last digit" in printed


@pytest.mark.parametrize("value", ["11.60", "12.0", "11.8 samples/sec", "1.18e1", "11.80 samples/s"])
def test_figure_within_the_tolerance_passes(checked, make_run, value):
    make_run("r1")
    assert checked([RIGHT[0], value, *RIGHT[2:]])[0] == 0


def test_wrong_figure_is_named_with_table_row_column_found_and_expected(checked, make_run):
    make_run("r1")
    code, printed, _ = checked([RIGHT[0], "13.5", *RIGHT[2:]])
    assert code == 1
    assert "my_results.md:6: Table 1, Training Speed (samples/sec), Value: found 13.5, expected 11.80" in printed


def test_tolerance_can_be_chosen(checked, make_run):
    make_run("r1")
    values = [RIGHT[0], "12.0", *RIGHT[2:]]
    assert checked(values, "--tolerance", "1")[0] == 1
    assert checked(values, "--tolerance", "1.7")[0] == 0


def test_rounding_of_a_small_figure_is_not_wrong(checked, make_run):
    make_run("r1", summary={"f1": 0.004})
    assert checked([RIGHT[0], "no step times", RIGHT[2], "0"])[0] == 0
    assert checked([RIGHT[0], "no step times", RIGHT[2], "0.02"])[0] == 1


def test_blank_cell_is_listed_and_wrong_only_in_a_complete_check(checked, make_run):
    make_run("r1")
    code, printed, _ = checked(RIGHT[:3])
    assert code == 0 and "F1 (%), Value: not filled in" in printed
    assert checked(RIGHT[:3], "--complete")[0] == 1


def test_word_is_compared_as_a_word(checked, make_run):
    make_run("r1", {"state": "oom"})
    assert checked(["OOM", "oom", "`OOM`", "**OOM**"])[0] == 0
    code, printed, _ = checked(["OOM", "11.8", "timeout", "OOM"])
    assert code == 1
    assert "found 11.8, expected OOM" in printed and "found timeout, expected OOM" in printed


def test_what_fill_prints_passes_the_check(checked, make_run, make_readme, logs, capsys):
    make_run("r1", summary=None)  # "no EM/F1" and "no step times" among the cells
    assert main(["fill", str(make_readme(README).parent), "--logs", str(logs)]) == 0
    code, printed, _ = checked([], "--complete", text=capsys.readouterr().out)
    assert code == 0 and "4 right" in printed


@pytest.mark.parametrize(
    ("values", "error"),
    [
        (["12,5x"], "my_results.md:5: '12,5x' is neither a figure such as 12.5"),
        (["0,7039"], "my_results.md:5: '0,7039' is neither a figure"),
        ([RIGHT[0], "11.8 MiB"], "my_results.md:6: '11.8 MiB' is in MiB, the column is in samples/s"),
    ],
)
def test_cell_that_cannot_be_read_is_an_error_with_its_line(checked, make_run, values, error):
    make_run("r1")
    code, _, printed = checked(values)
    assert code == 2 and error in printed


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("# My results\n", "my_results.md: no tables found"),
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


def test_row_that_was_deleted_counts_as_not_filled_in(checked, make_run):
    make_run("r1")
    code, printed, _ = checked(RIGHT[:3], text=README.replace("| F1 (%) | |\n", ""))
    assert code == 0 and "F1 (%), Value: not filled in" in printed


def test_missing_file_is_named(capsys):
    assert main(["check", "nowhere.md"]) == 2
    assert capsys.readouterr().err.startswith("error: nowhere.md")


def test_no_runs_to_check_against_has_its_own_exit_code(checked):
    assert checked(RIGHT)[0] == 3


@pytest.mark.parametrize(("value", "seconds"), [("0:05:00", 300), ("5:00", 300), ("300 sec", 300), ("300", 300)])
def test_runtime_may_be_written_as_a_duration(value, seconds):
    from tools.tables.fill import Cell
    from tools.tables.metrics import METRICS

    cell = Cell("300 s", 300.0, METRICS["total_runtime"])
    assert check.agrees(value, cell, 0.0, "x:1") == (seconds == 300)
