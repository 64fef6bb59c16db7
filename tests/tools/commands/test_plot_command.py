import subprocess
from xml.etree import ElementTree

import pytest
from matplotlib.figure import Figure

from tests.launching import REPO
from tests.tools.conftest import STEPS
from tools import plots
from tools.__main__ import main
from tools.errors import InputError
from tools.logs.runs import find_runs


@pytest.fixture
def plot(make_readme, logs, tmp_path, capsys):
    exercise = make_readme("# Baseline\n").parent

    def plot(*options: str, output: str = "curves.png") -> tuple[int, str, str]:
        code = main(["plot", str(exercise), "--logs", str(logs), "--output", str(tmp_path / output), *options])
        return code, *capsys.readouterr()

    return plot


@pytest.fixture
def drawn(plot, monkeypatch):
    """The figure of a plot, as matplotlib is told to draw it."""

    figures = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: figures.append(figure))

    def drawn(*options: str) -> Figure:
        assert plot(*options)[0] == 0
        return figures[-1]

    return drawn


def test_run_that_went_on_says_after_which_fault_and_from_which_step(drawn, make_run):
    undisturbed = {"config": "ddp", "settings": {"fault": "none"}}
    attempt = {"state": "failed", "last_step": 2, "resumed_step": 1}
    make_run("20261121-094500-p1", undisturbed)
    make_run("20261121-094500-p2", undisturbed | {"settings": {"fault": "rank_killed"}, "attempts": [attempt]})
    figure = drawn()
    (legend,) = figure.legends
    labels = [text.get_text() for text in legend.get_texts()]
    assert labels == ["ddp", "rank killed: failed after step 2, went on from step 1"]
    assert [list(line.get_xdata()) for line in figure.axes[0].lines if line.get_linestyle() == ":"] == [[1, 1]]


def test_without_a_gpu_the_memory_is_the_cpu_s(drawn, plot, make_run):
    make_run("r1", {"device": "cpu"}, **{"gpu_memory.csv": None})
    memory_axes = drawn().axes[1]
    assert memory_axes.get_title() == "CPU memory"
    assert memory_axes.lines[0].get_xydata().tolist() == [[0.0, 1000.5], [1.0, 8000.25]]
    assert plot("--plain")[1].startswith("![Training loss and CPU memory of baseline]")


TABLE = """**Table 1** *ZeRO stages*

| | Config | Total RunTime |
|---|---|---|
| Value | Stage 1 | |
| Value | Stage 2 | |
"""


def test_each_row_of_a_table_is_a_bar_and_tiny_runs_are_bars_of_the_tiny_table(make_run, make_readme, drawn, plot):
    make_readme(TABLE)
    for config, seconds in (("zero1", "05"), ("zero2", "07")):
        make_run(config, {"config": config, "end_time": f"2026-11-21T09:45:{seconds}+00:00"})
    (axes,) = drawn("--table", "1").axes
    assert [bar.get_width() for bar in axes.patches] == [5.0, 7.0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["Value / Stage 1", "Value / Stage 2"]
    assert axes.get_title() == "Table 1 ZeRO stages" and axes.get_xlabel() == "Total RunTime"
    assert "is tiny: leave out --tiny" in plot("--table", "1", "--tiny")[2]
    make_run("tiny", {"config": "zero1", "model": {"name": "tiny", "hidden_size": 64}})
    assert [bar.get_width() for bar in drawn("--table", "1", "--tiny").axes[0].patches] == [300.0, 0.0]
    code, _, error = plot("--table", "1", "--column", "Speed")
    assert code == 2 and "--table 1 --column 'Speed': " in error


def test_table_without_a_figure_is_an_error_that_names_tiny(make_run, make_readme, plot):
    make_readme(TABLE)
    make_run("tiny", {"config": "zero1", "model": {"name": "tiny", "hidden_size": 64}})
    code, _, error = plot("--table", "1")
    assert code == 2 and error.endswith("; of tiny runs: --tiny\n")


def test_a_plot_lies_where_git_ignores_it(make_readme, make_run, logs, tmp_path, monkeypatch, capsys):
    make_run("r1")
    monkeypatch.setenv("LOG_DIR", str(tmp_path / "elsewhere"))
    assert main(["plot", str(make_readme("# Baseline\n").parent), "--logs", str(logs)]) == 0
    assert capsys.readouterr().out == f"wrote {tmp_path}/elsewhere/baseline.png\n"
    ignored = ["logs/baseline.png", "my_results.md", "fsdp/my_results-2.md"]
    answer = subprocess.run(["git", "check-ignore", *ignored], cwd=REPO, capture_output=True, text=True)
    assert answer.stdout.split() == ignored


def test_what_cannot_be_drawn_is_an_error_and_no_runs_another(plot, make_run):
    assert plot()[0] == 3
    empty = make_run("r1", **{"steps.csv": None, "gpu_memory.csv": None, "cpu_memory.txt": None})
    code, _, error = plot()
    assert code == 2 and "of 1 run none has steps.csv or a log of memory" in error
    (empty / "steps.csv").write_text(STEPS)
    assert plot("--over", "time")[0] == 0
    code, _, error = plot("--over", "examples")  # which this log does not count
    assert code == 2 and "of 1 run none" in error
    (empty / "steps.csv").write_text("step,step_time_s,tokens,real_tokens,loss,epoch,samples\n1,0.5,8,7,2.5,0.25,16\n")
    assert plot("--over", "examples")[0] == 0


@pytest.mark.parametrize("output", ["curves.txt", "nowhere/curves.png"])
def test_output_that_cannot_be_written_is_an_error_before_reading(plot, make_run, output):
    make_run("r1")
    code, _, error = plot(output=output)
    assert code == 2 and "--output" in error


@pytest.fixture
def cell(make_run):
    def cell(name: str, speed: float, repeat: int = 1, config: str = "zero0", batch: int = 32, **record):
        settings = {"fp16": False, "bf16": True, "batch_size": batch, "max_length": 128, "repeat": repeat}
        facts = {"exercise": "benchmark", "experiment": "benchmark", "config": config, "precision": "bf16"}
        summary = {"train/median_tokens_per_second": speed, "peak_mem_alloc_mib": 1000.0}
        make_run(name, facts | {"settings": settings, "model": {"name": "gpt2"}} | record, summary)

    return cell


def grid(logs, svg) -> tuple[list[str], list[str]]:
    """The texts of the benchmark's plot of all runs, and the notes."""
    notes = plots.draw_grid(find_runs(logs), "benchmark", svg)
    root = ElementTree.parse(svg)
    return ["".join(one.itertext()) for one in root.iter("{http://www.w3.org/2000/svg}text")], notes


def test_cell_is_the_median_of_the_repeats_the_newest_of_each_and_of_one_size(cell, logs, tmp_path):
    for repeat, speed in enumerate((100.0, 400.0, 200.0), 1):
        cell(f"r{repeat}", speed, repeat)
    cell("r4", 300.0, 1, start_time="2026-11-21T10:45:00+00:00")
    cell("larger", 500.0, batch=64)
    texts, notes = grid(logs, tmp_path / "grid.svg")
    assert {"300", "500", "1,000", "zero0", "32", "64", "batch size", "Tokens/s"} <= set(texts) and notes == []


def test_run_in_another_precision_is_left_out_and_named(cell, logs, tmp_path):
    cell("r1", 100.0, precision="fp32")
    with pytest.raises(InputError, match=r"of 1 run none has completed in its precision.*ran in fp32"):
        grid(logs, tmp_path / "grid.svg")
    cell("r2", 200.0)
    cell("r3", 300.0, config="zero2", state="oom")
    texts, notes = grid(logs, tmp_path / "grid.svg")
    assert "200" in texts and not {"100", "300"} & set(texts)
    assert [note.rpartition("/")[2] for note in notes] == ["r1: ran in fp32", "r3: OOM"]
