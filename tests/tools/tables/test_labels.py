import tomllib

import pytest

from tools.__main__ import main
from tools.errors import InputError
from tools.logs.figures import FIGURES
from tools.logs.run import is_fact
from tools.logs.runs import find_runs, read_run
from tools.page.course_tables import course_tables
from tools.tables import markdown
from tools.tables.fill import value_of
from tools.tables.labels import (
    SIZES,
    TINY_CAPTION_END,
    blank_cells,
    blank_tables,
    meaning,
    run_conditions,
    tiny_view,
    tiny_views,
)
from tools.tables.repository import exercise_folder, exercises, table_definitions


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


def test_blank_table_in_the_results_is_found_by_fill_check_and_page(make_readme, make_run, logs, capsys, monkeypatch):
    folder = make_readme("# Baseline\n").parent
    text = "**Table 2** *T*\n\n| | Value |\n|---|---|\n| Peak GPU Memory (MiB) | |\n"
    (folder / "RESULTS.md").write_text(text)
    make_run("r1")
    assert main(["fill", str(folder), "--logs", str(logs)]) == 0
    assert "| Peak GPU Memory (MiB) | 21,658 |" in capsys.readouterr().out

    monkeypatch.setattr("tools.commands.check.table_definitions", lambda: table_definitions(folder.parent))
    (folder.parent / "mine.md").write_text(text.replace("(MiB) |", "(MiB) | 21,658"))
    assert main(["check", str(folder.parent / "mine.md"), "--logs", str(logs)]) == 0

    monkeypatch.setattr("tools.page.course_tables.exercises", lambda: [folder])
    (one,) = course_tables(find_runs(logs), [])
    assert one.own.cells[0][1].text == "21,658"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[labels]\nA = { figure = 'speed' }\n", "tables.toml: 'A': unknown figure 'speed'"),
        ("[labels]\nA = { modle = 'gpt2' }\n", "tables.toml: 'A': unknown condition 'modle'"),
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
        value_of(FIGURES["gain_over_textbook"], lambda _: [run], {"bases": {}})


@pytest.mark.parametrize("exercise", exercises(), ids=lambda folder: folder.name)
def test_every_table_has_a_view_for_tiny_runs_that_asks_for_no_size_and_that_check_knows(exercise, tmp_path):
    compared = {"precision"} if exercise.name == "benchmark" else set()
    for table in blank_tables(exercise):
        cells = [cell for row in blank_cells(tiny_view(table)) for cell in row if cell]
        assert cells and all(cell.where["tiny"] and not cell.where.keys() & (SIZES - compared) for cell in cells)
    views = tiny_views(blank_tables(exercise))
    (tmp_path / "my_results.md").write_text("\n\n".join(markdown.render(view, view.rows) for view in views))
    copies = markdown.read_tables(tmp_path / "my_results.md")
    assert [(copy.number, copy.header, copy.rows) for copy in copies] == [(v.number, v.header, v.rows) for v in views]
    assert all(copy.caption.endswith(TINY_CAPTION_END) for copy in copies)


@pytest.mark.parametrize(
    ("exercise", "label", "tiny"),
    [
        ("deepspeed-single-gpu", "BLOOM-560m, 500", "tiny"),
        ("deepspeed-single-gpu", "Stage 2 + offload", "Stage 2 + offload"),
        ("fsdp", "Of DDP, 4 x 4 (%)", "Of DDP (%)"),
        ("models", "llama-2-7b, variant: float8, 4,096 tokens", "variant: float8"),
        ("benchmark", "zs0_fp32_gpus1_bs32_sl128", "zs0_fp32_gpus1"),
    ],
)
def test_only_the_size_is_cut_off_a_label(exercise, label, tiny):
    assert meaning(exercise_folder(exercise), label).tiny == tiny


def test_row_that_differs_in_size_only_and_a_table_that_asks_for_nothing_new_are_left_out(make_readme):
    head = "| Model | Config | Peak GPU Memory (MiB) |\n|---|---|---|\n"
    rows = "| BLOOM-560m, 500 | Stage 2 | |\n| BLOOM-3b, 10,000 | Stage 2 | |\n| BLOOM-3b, 10,000 | Stage 3 | |\n"
    captions = "**Table 4** *Large: 2 GPUs, 10,000 rows of 512 tokens, twice*", "**Table 4b** *BLOOM-560m again*"
    readme = make_readme("\n".join(f"{caption}\n\n{head}{rows}" for caption in captions))
    (view,) = tiny_views(blank_tables(readme.parent))
    assert view.caption == "**Table 4** *Large: 2 GPUs, twice (tiny runs)*"
    assert [row[:2] for row in view.rows] == [["tiny", "Stage 2"], ["tiny", "Stage 3"]]
    assert view.lines == [5, 7]
