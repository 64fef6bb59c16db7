import pytest

from tools.errors import InputError
from tools.tables import markdown

TABLE = "**Table 1** *Title*\n\n| Metric | Value |\n|---|---|\n| F1 (%) | |\n"


@pytest.fixture
def read(tmp_path):
    def read(text: str) -> list[markdown.Table]:
        (tmp_path / "README.md").write_text(text)
        return markdown.read_tables(tmp_path / "README.md")

    return read


@pytest.mark.parametrize("text", [TABLE, TABLE.replace("*\n\n", "*\n")])
def test_caption_belongs_to_the_table_below_it(read, text):
    (table,) = read("# Lesson\n\n" + text + "\nMore text | with a bar\n")
    assert (table.number, table.header, table.rows) == ("1", ["Metric", "Value"], [["F1 (%)", ""]])
    assert table.blank


def test_generated_and_fenced_tables_are_no_definitions(read):
    generated = f"<!-- generated: python -m tools fill baseline -->\n{TABLE}<!-- end generated -->\n"
    assert len(read(generated + "```\n" + TABLE + "```\n" + TABLE)) == 1


def test_all_leading_filled_columns_are_row_labels(read):
    (table,) = read(
        "**Table 4** *T*\n\n| Model | Config | A | B |\n|---|---|---|---|\n| x | y | | |\n| x | z | 1 | |\n"
    )
    assert table.label_columns == 2


def test_escaped_pipe_does_not_end_a_cell():
    assert markdown.cells(r"| a \| b | |") == [r"a \| b", ""]


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
