"""What the benchmark's plot shows, and that a committed plot is the same text for the same runs."""

from xml.etree import ElementTree

import pytest

from tools import plots
from tools.errors import InputError
from tools.logs.runs import find_runs


@pytest.fixture
def cell(make_run):
    def cell(name: str, speed: float, repeat: int = 1, config: str = "zero0", batch: int = 32, **record):
        settings = {"fp16": False, "bf16": True, "batch_size": batch, "max_length": 128, "repeat": repeat}
        facts = {"exercise": "benchmark", "experiment": "benchmark", "config": config, "precision": "bf16"}
        summary = {"train/median_tokens_per_second": speed, "peak_mem_alloc_mib": 1000.0}
        make_run(name, facts | {"settings": settings, "model": {"name": "gpt2"}} | record, summary)

    return cell


@pytest.fixture
def drawn(logs, tmp_path):
    """The texts of the plot of all runs, and the notes."""

    def drawn() -> tuple[list[str], list[str]]:
        notes = plots.draw_grid(find_runs(logs), "benchmark", tmp_path / "grid.svg")
        root = ElementTree.parse(tmp_path / "grid.svg")
        return ["".join(one.itertext()) for one in root.iter("{http://www.w3.org/2000/svg}text")], notes

    return drawn


def test_cell_is_the_median_of_the_repeats_the_newest_of_each_and_of_one_size(cell, drawn):
    for repeat, speed in enumerate((100.0, 400.0, 200.0), 1):
        cell(f"r{repeat}", speed, repeat)
    cell("r4", 300.0, 1, start_time="2026-11-21T10:45:00+00:00")
    cell("larger", 500.0, batch=64)
    texts, notes = drawn()
    assert {"300", "500", "1,000", "zero0", "32", "64", "batch size", "Tokens/s"} <= set(texts) and notes == []


def test_run_in_another_precision_is_left_out_and_named(cell, drawn):
    cell("r1", 100.0, precision="fp32")
    with pytest.raises(InputError, match=r"of 1 run none has completed in its precision.*ran in fp32"):
        drawn()
    cell("r2", 200.0)
    cell("r3", 300.0, config="zero2", state="oom")
    texts, notes = drawn()
    assert "200" in texts and not {"100", "300"} & set(texts)
    assert [note.rpartition("/")[2] for note in notes] == ["r1: ran in fp32", "r3: OOM"]
