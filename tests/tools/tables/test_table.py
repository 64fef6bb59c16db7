"""Every table is read, every label of it can be filled, and what a participant fills by hand is asked for."""

from dataclasses import replace
from pathlib import Path

import pytest

from tools.__main__ import main
from tools.errors import InputError
from tools.tables import markdown
from tools.tables.fill import fill
from tools.tables.forms import cell_at, questions
from tools.tables.repository import exercise_folder, exercises
from tools.tables.table import SIZES, blank_cells, blank_tables, predictions, tables_py


@pytest.mark.parametrize("exercise", exercises(), ids=lambda folder: folder.name)
def test_every_cell_of_the_documents_has_a_figure_and_every_table_of_tables_py_is_in_a_document(exercise):
    tables = blank_tables(exercise)
    assert [table.number for table in tables] == [*tables_py(exercise).TABLES]
    for table in tables:
        assert any(cell for row in blank_cells(table) for cell in row)


@pytest.mark.parametrize("exercise", exercises(), ids=lambda folder: folder.name)
def test_tiny_run_meets_every_condition_on_a_size(exercise):
    for table in blank_tables(exercise):
        asked = [cell[1] for row in blank_cells(replace(table, tiny=True)) for cell in row if cell]
        sizes = SIZES.difference(table.definition.compares)
        assert asked and all(where["tiny"] and not where.keys() & sizes for where in asked)
        assert "world_size" not in table.definition.where or all("world_size" in where for where in asked), (
            "also of one"
        )


TABLE = "**Table 1** *Title*\n\n| Metric | Value |\n|---|---|\n| F1 (%) | |\n"


def read(folder: Path, text: str) -> list[markdown.Table]:
    (folder / "README.md").write_text(text)
    return markdown.read_tables(folder / "README.md")


def test_generated_and_fenced_tables_are_no_definitions(tmp_path):
    generated = f"<!-- generated: python -m tools fill baseline -->\n{TABLE}<!-- end generated -->\n"
    assert [one.generated for one in read(tmp_path, generated + "```\n" + TABLE + "```\n" + TABLE)] == [True, False]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("**Table 1** *T*\n\ntext\n", "README.md:1: Table 1 has a caption, but no pipe table"),
        ("**Table 1** *T*", "README.md:1: Table 1 has a caption, but no pipe table"),
        ("**Table 1** *T*\n\n| a | b |\n|---|---|\n| c |\n", "README.md:5: 1 cell, but the header of Table 1 has 2"),
        ("**Table 1** *T*\n\n| a | b |\n|---|---|\n\n", "README.md:3: Table 1 has no rows"),
    ],
)
def test_broken_table_is_named_with_its_line(tmp_path, text, error):
    with pytest.raises(InputError, match=error):
        read(tmp_path, text)


def test_block_of_the_results_gives_rows_that_no_blank_table_has(make_readme):
    head = "**Table 1** *T*\n\n| Metric | Value |\n|---|---|\n"
    readme = make_readme(f"{head}| F1 (%) | ? |\n")
    (readme.parent / "RESULTS.md").write_text(
        "<!-- generated: python -m tools fill baseline --plain -->\n\n"
        f"{head}| F1 (%) | 55.12 |\n| Energy (J) | not logged |\n\n{head.replace('1', '2')}| Samples/s | 11.80 |\n\n"
        "<!-- end generated -->\n"
    )
    tables = blank_tables(readme.parent)
    assert [table.rows for table in tables] == [[["F1 (%)", "?"], ["Energy (J)", ""]], [["Samples/s", ""]]]
    (readme.parent / "RESULTS.md").write_text(head.replace("1", "77") + "| F1 (%) | |\n")
    with pytest.raises(KeyError, match="77"):
        blank_tables(readme.parent)


def test_unknown_label_is_a_traceback_with_its_line(make_readme):
    (table,) = blank_tables(make_readme("**Table 1** *T*\n\n| Metric | Value |\n|---|---|\n| F3 (%) | |\n").parent)
    with pytest.raises(KeyError, match=r"f3 \(%\)") as error:
        fill(table, [])
    line = error.traceback[-2]
    assert (line.path.name, str(line.statement).strip()) == ("tables.py", "return figure(metric), runs()")


def test_block_has_no_row_of_the_blank_table_without_a_recorded_figure() -> None:
    tables = {table.number: table for table in blank_tables(exercise_folder("fsdp"))}
    rows = {number: fill(tables[number], []).markdown(recorded_only=True).splitlines()[4:] for number in ("10b", "12")}
    assert rows["10b"] == []
    assert [row.split(" |")[0] for row in rows["12"]] == ["| 1 node", "| 2 nodes", "| 4 nodes", "| 8 nodes"]


TAUGHT = [folder for folder in exercises() if folder.name != "models"]


@pytest.mark.parametrize("folder", TAUGHT, ids=lambda folder: folder.name)
def test_figures_beside_the_predictions_are_cells_of_the_exercise(folder: Path) -> None:
    named = predictions(folder)
    assert named.keys() <= {str(number) for number in range(1, len(questions(folder)) + 1)}
    tables = {table.number: table for table in blank_tables(folder)}
    for number, row, column in (cell for cells in named.values() for cell in cells):
        assert cell_at(fill(tables[number], []), row, column), (number, row, column)


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
