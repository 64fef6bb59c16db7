"""Every table is read, and every label of it can be filled."""

import tomllib

import pytest

from tools.errors import InputError
from tools.logs.run import is_fact
from tools.tables import markdown
from tools.tables.labels import (
    SIZES,
    TINY_CAPTION_END,
    blank_cells,
    blank_tables,
    run_conditions,
    tiny_view,
    tiny_views,
)
from tools.tables.repository import exercises


@pytest.mark.parametrize("exercise", exercises(), ids=lambda folder: folder.name)
def test_every_label_of_every_table_can_be_filled_and_every_condition_is_on_a_fact(exercise):
    for table in blank_tables(exercise):
        for cell in (cell for row in blank_cells(table) for cell in row if cell):
            assert all(map(is_fact, run_conditions(cell.where)))


def test_every_table_of_the_toml_is_in_a_document():
    for exercise in exercises():
        content = tomllib.loads((exercise / "tables.toml").read_text())
        numbers = {number for block in content["tables"] for number in block} - {"where", "exercises"}
        assert numbers == {table.number for table in blank_tables(exercise)}


@pytest.mark.parametrize("exercise", exercises(), ids=lambda folder: folder.name)
def test_every_table_has_a_view_for_tiny_runs_that_asks_for_no_size_and_that_check_knows(exercise, tmp_path):
    compared = {"precision"} if exercise.name == "benchmark" else set()
    for table in blank_tables(exercise):
        cells = [cell for row in blank_cells(tiny_view(table)) for cell in row if cell]
        assert cells and all(cell.where["tiny"] and not cell.where.keys() & (SIZES - compared) for cell in cells)
    views = tiny_views(blank_tables(exercise))
    (tmp_path / "my_results.md").write_text("\n\n".join(markdown.render(view, view.rows) for view in views))
    copies = markdown.read_tables(tmp_path / "my_results.md")
    read, written = (
        [(one.number, one.header, markdown.cells(one.separator), one.rows) for one in tables]
        for tables in (copies, views)
    )
    assert read == written and all(len(header) == len(marks) for _, header, marks, _ in read)
    assert all(copy.caption.endswith(TINY_CAPTION_END) for copy in copies)


TABLE = "**Table 1** *Title*\n\n| Metric | Value |\n|---|---|\n| F1 (%) | |\n"


@pytest.fixture
def read(tmp_path):
    def read(text: str) -> list[markdown.Table]:
        (tmp_path / "README.md").write_text(text)
        return markdown.read_tables(tmp_path / "README.md")

    return read


def test_generated_and_fenced_tables_are_no_definitions(read):
    generated = f"<!-- generated: python -m tools fill baseline -->\n{TABLE}<!-- end generated -->\n"
    assert len(read(generated + "```\n" + TABLE + "```\n" + TABLE)) == 1


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("**Table 1** *T*\n\ntext\n", "README.md:1: Table 1 has a caption, but no pipe table"),
        ("**Table 1** *T*", "README.md:1: Table 1 has a caption, but no pipe table"),
        ("**Table 1** *T*\n\n| a | b |\n|---|---|\n| c |\n", "README.md:5: 1 cell, but the header of Table 1 has 2"),
        ("**Table 1** *T*\n\n| a | b |\n|---|---|\n\n", "README.md:3: Table 1 has no rows"),
    ],
)
def test_broken_table_is_named_with_its_line(read, text, error):
    with pytest.raises(InputError, match=error):
        read(text)


def test_filled_table_in_a_generated_block_of_the_results_is_the_blank_one(make_readme):
    head = "**Table 2** *T*\n\n| Run | Peak GPU Memory (MiB) | Logits computed |\n|---|---|---|\n"
    folder = make_readme("# Ladder\n").parent
    (folder / "tables.toml").write_text('[[tables]]\n2 = {}\n[labels]\n"Stage {stage}" = {}\n"Logits computed" = {}\n')
    (folder / "RESULTS.md").write_text(
        f"<!-- generated: python -m tools fill x --plain -->\n\n{head}| Stage 1 | 21,658 | all |\n"
        "| Stage 2 | not measured | none |\n\n<!-- end generated -->\n"
    )
    (table,) = blank_tables(folder)
    assert table.rows == [["Stage 1", "", "all"], ["Stage 2", "", "none"]]
    assert table.where == {} and len([cell for row in blank_cells(table) for cell in row if cell]) == 2
