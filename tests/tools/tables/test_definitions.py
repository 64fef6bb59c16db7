import tomllib

import pytest

from tools.__main__ import main
from tools.errors import InputError
from tools.logs.runs import find_runs, read_run
from tools.page.course_tables import course_tables
from tools.tables.definitions import definitions, meaning, plan, run_conditions
from tools.tables.metrics import METRICS
from tools.tables.repository import exercises, table_definitions


@pytest.mark.parametrize("exercise", exercises(), ids=lambda folder: folder.name)
def test_every_label_of_every_table_can_be_filled_and_every_condition_is_on_a_fact(exercise, make_run):
    run = read_run(make_run("r1"))
    for table in definitions(exercise):
        for cell in (cell for row in plan(table) for cell in row if cell):
            assert run_conditions(cell.where).keys() <= run.facts.keys()


def test_every_table_of_the_toml_is_in_a_document():
    for exercise in exercises():
        content = tomllib.loads((exercise / "tables.toml").read_text())
        numbers = {number for block in content["tables"] for number in block} - {"where", "exercises"}
        assert numbers == {table.number for table in definitions(exercise)}


def test_blank_table_in_the_results_is_found_by_fill_check_and_page(make_readme, make_run, logs, capsys, monkeypatch):
    folder = make_readme("# Baseline\n").parent
    text = "**Table 2** *T*\n\n| | Value |\n|---|---|\n| Peak GPU Memory Usage (MiB) | |\n"
    (folder / "RESULTS.md").write_text(text)
    make_run("r1")
    assert main(["fill", str(folder), "--logs", str(logs)]) == 0
    assert "| Peak GPU Memory Usage (MiB) | 21,658 |" in capsys.readouterr().out

    monkeypatch.setattr("tools.commands.check.table_definitions", lambda: table_definitions(folder.parent))
    (folder.parent / "mine.md").write_text(text.replace("(MiB) |", "(MiB) | 21,658"))
    assert main(["check", str(folder.parent / "mine.md"), "--logs", str(logs)]) == 0

    monkeypatch.setattr("tools.page.course_tables.exercises", lambda: [folder])
    (one,) = course_tables(find_runs(logs), [])
    assert one.own.cells[0][1].text == "21,658"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[labels]\nA = { metric = 'speed' }\n", "tables.toml: 'A': unknown metric 'speed'"),
        ("[labels\n", "tables.toml: "),
    ],
)
def test_wrong_toml_is_named(tmp_path, text, says):
    (tmp_path / "tables.toml").write_text(text)
    with pytest.raises(InputError, match=says):
        meaning(tmp_path, "A")


def test_ratio_without_a_base_names_the_file_that_lacks_it(make_run) -> None:
    run = read_run(make_run("r1", summary={"train/real_tokens_per_second": 1000.0}))
    with pytest.raises(InputError, match=r"tables\.toml: \[bases\]: no 'textbook'; found nothing"):
        METRICS["gain_over_textbook"].value(lambda _: [run], {"bases": {}})
