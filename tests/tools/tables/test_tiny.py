import pytest

from tools.logs.runs import find_runs
from tools.tables import markdown
from tools.tables.fill import definitions, fill, plan
from tools.tables.ladder import TOP
from tools.tables.registry import SIZES
from tools.tables.repository import ROOT, readmes
from tools.tables.tiny import CAPTION_END, tiny_view, tiny_views, without_size

BLANK = [readme for readme in readmes(ROOT) if definitions(readme)]


@pytest.mark.parametrize("readme", BLANK, ids=lambda readme: readme.parent.name)
def test_every_table_has_a_view_for_tiny_runs_that_asks_for_no_size(readme):
    compared = {"precision"} if readme.parent.name == "benchmark" else set()
    for table in definitions(readme):
        cells = [cell for row in plan(tiny_view(table)) for cell in row if cell]
        assert cells and all(cell.where["tiny"] and not cell.where.keys() & (SIZES - compared) for cell in cells)


@pytest.mark.parametrize("readme", BLANK, ids=lambda readme: readme.parent.name)
def test_blank_tiny_tables_are_those_that_check_knows(readme, tmp_path):
    views = tiny_views(definitions(readme))
    (tmp_path / "my_results.md").write_text("\n\n".join(markdown.render(view, view.rows) for view in views))
    copies = markdown.read_tables(tmp_path / "my_results.md")
    assert [(copy.number, copy.header, copy.rows) for copy in copies] == [(v.number, v.header, v.rows) for v in views]
    assert all(copy.caption.endswith(CAPTION_END) for copy in copies)


@pytest.mark.parametrize(
    ("label", "tiny"),
    [
        ("BLOOM-560m, 500", "tiny"),
        ("4 x 4, fp16", "tiny"),
        ("Stage 2 + offload", "Stage 2 + offload"),
        ("2 GPUs", "2 GPUs"),
        ("Of DDP, 4 x 4 (%)", "Of DDP (%)"),
        ("11 labelled, 40 epochs", "11 labelled"),
        ("peer: trl padded, 64 rows", "peer: trl padded"),
        ("zs0_fp32_gpus1_bs32_sl128", "zs0_fp32_gpus1"),
    ],
)
def test_only_the_size_is_cut_off_a_label(label, tiny):
    assert without_size(label) == tiny


def test_row_that_differs_in_size_only_and_a_table_that_asks_for_nothing_new_are_left_out(make_readme):
    head = "| Model | Config | Peak GPU Memory (MiB) |\n|---|---|---|\n"
    rows = "| BLOOM-560m, 500 | Stage 2 | |\n| BLOOM-3b, 10,000 | Stage 2 | |\n| BLOOM-3b, 10,000 | Stage 3 | |\n"
    readme = make_readme(f"**Table 4** *Large*\n\n{head}{rows}\n**Table 4b** *BLOOM-560m again*\n\n{head}{rows}")
    (view,) = tiny_views(definitions(readme))
    assert view.caption == "**Table 4** *Large (tiny runs)*"
    assert [row[:2] for row in view.rows] == [["tiny", "Stage 2"], ["tiny", "Stage 3"]]
    assert view.lines == [5, 7]


def test_share_of_one_gpu_is_that_of_the_tiny_runs_whatever_their_number(make_run, logs):
    facts = {"settings": {"rung": TOP, "model_name": "tiny"}, "model": {"name": "tiny", "hidden_size": 64}}
    speeds = {"train/samples_per_second": 100.0}, {"train/samples_per_second": 150.0}
    make_run("one", facts | {"exercise": "speed-ladder", "world_size": 1}, speeds[0])
    make_run("two", facts | {"exercise": "fsdp", "world_size": 2, "sharding": {"method": "ddp"}}, speeds[1])
    (table,) = (table for table in definitions(ROOT / "speed-ladder" / "README.md") if table.number == "19")
    cells = {row[0]: row[-1] for row in filled(tiny_view(table), find_runs(logs))}
    assert (cells["One GPU"], cells["DDP"]) == ("100.0", "75.0")


def filled(table, runs):
    return [
        [row[0], *(cell.text for cell in cells if cell)]
        for row, cells in zip(table.rows, fill(table, runs).cells, strict=True)
    ]


def test_table_about_one_gpu_shows_no_tiny_run_of_two_processes(make_run, logs):
    facts = {"exercise": "speed-ladder", "model": {"name": "tiny", "hidden_size": 64}}
    facts |= {"settings": {"rung": TOP, "model_name": "tiny"}}
    make_run("one", facts)
    make_run("two", facts | {"world_size": 2, "start_time": "2026-11-22T09:45:00+00:00"})
    ladder = next(table for table in definitions(ROOT / "speed-ladder/README.md") if table.number == "18")
    assert [run.folder.name for run in fill(tiny_view(ladder), find_runs(logs)).runs] == ["one"]
