"""What the benchmark's plot shows: the bars and curves that matplotlib is told to draw, not its pixels."""

import pytest
from matplotlib import pyplot

from tools import plots
from tools.errors import InputError
from tools.logs.runs import find_runs


@pytest.fixture
def cell(make_run):
    def cell(name: str, speed: float, repeat: int = 1, config: str = "zero0", batch: int = 32, **record):
        settings = {"fp16": False, "bf16": True, "batch_size": batch, "max_length": 128, "repeat": repeat}
        facts = {"exercise": "benchmark", "experiment": "benchmark", "config": config, "precision": "bf16"}
        summary = {"train/median_tokens_per_second": speed, "train/steps_per_second": 100 / batch}
        summary |= {"peak_mem_alloc_mib": 1000.0, "train/tokens_per_second": speed}
        make_run(name, facts | {"settings": settings, "model": {"name": "gpt2"}} | record, summary)

    return cell


@pytest.fixture
def drawn(logs, tmp_path, monkeypatch):
    """The axes and the notes of the plot of all runs."""

    def drawn():
        monkeypatch.setattr(pyplot, "close", lambda figure: None)
        notes = plots.draw_grid(find_runs(logs), "benchmark", tmp_path / "grid.png")
        assert (tmp_path / "grid.png").stat().st_size > 10_000
        return pyplot.gcf().axes, notes

    yield drawn
    monkeypatch.undo()
    pyplot.close("all")


def heights(axes) -> list[float]:
    return sorted(bar.get_height() for bar in axes.patches)


def test_bar_is_the_median_of_the_repeats_and_its_error_bar_their_spread(cell, drawn):
    for repeat, speed in enumerate((100.0, 400.0, 200.0), 1):
        cell(f"r{repeat}", speed, repeat)
    (speed_axes, memory_axes, *_), notes = drawn()
    assert heights(speed_axes) == [200.0] and heights(memory_axes) == [1000.0]
    assert speed_axes.patches[0].get_center()[0] == 0, "the only bar stands over its name"
    ((low, high),) = (segment[:, 1] for segment in speed_axes.collections[0].get_segments())
    assert (low, high) == (100.0, 400.0)
    assert notes == []


def test_repeat_that_was_run_again_counts_once_as_in_the_table(cell, drawn):
    cell("r1", 100.0)
    cell("r2", 300.0, start_time="2026-11-21T10:45:00+00:00")
    assert heights(drawn()[0][0]) == [300.0]


def test_run_in_another_precision_is_left_out_and_named(cell, drawn):
    cell("r1", 100.0)
    cell("r2", 200.0, config="zero1", precision="fp32")
    cell("r3", 300.0, config="zero2", state="oom")
    (axes, *_), notes = drawn()
    assert heights(axes) == [100.0]
    assert [note.rpartition("/")[2] for note in notes] == ["r2: ran in fp32, not in bf16", "r3: OOM"]


def test_other_models_and_sizes_are_no_repeats(cell, drawn):
    for repeat in (1, 2):
        cell(f"r{repeat}", 100.0, repeat)
    cell("other", 900.0, 3, model={"name": "bloom-560m"})
    cell("larger", 500.0, batch=64)
    (speed_axes, _, batch_axes, length_axes), _ = drawn()
    assert heights(speed_axes) == [100.0] and speed_axes.get_title().startswith("gpt2, 1 process, batch 32")
    (curve,) = batch_axes.lines[:1]
    assert curve.get_xydata().tolist() == [[32.0, 320.0], [64.0, 640.0]]
    assert [text.get_text() for text in length_axes.texts] == ["runs of one size only"]


def test_runs_of_one_size_draw_no_empty_panels(cell, drawn):
    cell("r1", 100.0)
    assert len(drawn()[0]) == 2


def test_nothing_to_draw_says_why(cell, drawn):
    cell("r1", 100.0, precision="fp32")
    with pytest.raises(InputError, match=r"of 1 run none has completed in its precision.*ran in fp32"):
        drawn()
