import pytest

from tools.tables import markdown
from tools.tables.definitions import SIZES, TINY_CAPTION_END, definitions, meaning, plan, tiny_view, tiny_views
from tools.tables.repository import ROOT, exercises

TOP = "11_labelled"


@pytest.mark.parametrize("exercise", exercises(), ids=lambda folder: folder.name)
def test_every_table_has_a_view_for_tiny_runs_that_asks_for_no_size_and_that_check_knows(exercise, tmp_path):
    compared = {"precision"} if exercise.name == "benchmark" else set()
    for table in definitions(exercise):
        cells = [cell for row in plan(tiny_view(table)) for cell in row if cell]
        assert cells and all(cell.where["tiny"] and not cell.where.keys() & (SIZES - compared) for cell in cells)
    views = tiny_views(definitions(exercise))
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
    assert meaning(ROOT / exercise, label).tiny == tiny


def test_row_that_differs_in_size_only_and_a_table_that_asks_for_nothing_new_are_left_out(make_readme):
    head = "| Model | Config | Peak GPU Memory (MiB) |\n|---|---|---|\n"
    rows = "| BLOOM-560m, 500 | Stage 2 | |\n| BLOOM-3b, 10,000 | Stage 2 | |\n| BLOOM-3b, 10,000 | Stage 3 | |\n"
    readme = make_readme(f"**Table 4** *Large*\n\n{head}{rows}\n**Table 4b** *BLOOM-560m again*\n\n{head}{rows}")
    (view,) = tiny_views(definitions(readme.parent))
    assert view.caption == "**Table 4** *Large (tiny runs)*"
    assert [row[:2] for row in view.rows] == [["tiny", "Stage 2"], ["tiny", "Stage 3"]]
    assert view.lines == [5, 7]
