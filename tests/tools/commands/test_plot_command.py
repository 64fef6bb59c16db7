import subprocess

import pytest
from matplotlib.figure import Figure

from tests.launching import REPO
from tools.__main__ import main


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


def test_rows_of_a_table_with_the_same_first_label_are_bars_of_their_own(make_run, make_readme, drawn):
    make_readme(TABLE)
    for config, seconds in (("zero1", "05"), ("zero2", "07")):
        facts = {"config": config, "end_time": f"2026-11-21T09:45:{seconds}+00:00"}
        make_run(config, facts)
    (axes,) = drawn("--table", "1").axes
    assert [bar.get_width() for bar in axes.patches] == [5.0, 7.0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["Value / Stage 1", "Value / Stage 2"]
    assert axes.get_title() == "Table 1 ZeRO stages" and axes.get_xlabel() == "Total RunTime"


def test_tiny_runs_are_bars_of_the_tiny_table(make_run, make_readme, drawn, plot):
    make_readme(TABLE)
    make_run("r0", {"state": "failed"})
    assert "is tiny: leave out --tiny" in plot("--table", "1", "--tiny")[2]
    make_run("r1", {"config": "zero1", "model": {"name": "tiny", "hidden_size": 64}})
    code, _, error = plot("--table", "1")
    assert code == 2 and error.endswith("; of tiny runs: --tiny\n")
    assert [bar.get_width() for bar in drawn("--table", "1", "--tiny").axes[0].patches] == [300.0, 0.0]
    code, _, error = plot("--table", "1", "--column", "Speed")
    assert code == 2 and "--table 1 --column 'Speed': " in error


def test_a_plot_lies_where_git_ignores_it(make_readme, make_run, logs, tmp_path, monkeypatch, capsys):
    make_run("r1")
    monkeypatch.setenv("LOG_DIR", str(tmp_path / "elsewhere"))
    assert main(["plot", str(make_readme("# Baseline\n").parent), "--logs", str(logs)]) == 0
    assert capsys.readouterr().out == f"wrote {tmp_path}/elsewhere/baseline.png\n"
    ignored = [
        str(path) for path in (REPO / "logs/baseline.png", REPO / "my_results.md", REPO / "fsdp/my_results-2.md")
    ]
    answer = subprocess.run(["git", "check-ignore", *ignored], cwd=REPO, capture_output=True, text=True)
    assert answer.stdout.split() == ignored


def test_loss_over_examples_needs_a_log_that_counts_them(plot, make_run):
    make_run("r1", **{"gpu_memory.csv": None, "cpu_memory.txt": None})
    assert plot("--over", "time")[0] == 0
    code, _, error = plot("--over", "examples")
    assert code == 2 and "of 1 run none" in error
    steps = "step,step_time_s,tokens,real_tokens,loss,epoch,samples\n1,0.5,2048,700,2.5,0.25,16\n"
    make_run("r2", **{"gpu_memory.csv": None, "steps.csv": steps})
    assert plot("--over", "examples")[0] == 0


def test_nothing_to_draw_is_an_error_and_no_runs_another(plot, make_run):
    assert plot()[0] == 3
    make_run("r1", **{"steps.csv": None, "gpu_memory.csv": None, "cpu_memory.txt": None})
    code, _, error = plot()
    assert code == 2 and "of 1 run none has steps.csv or a log of memory" in error


@pytest.mark.parametrize("output", ["curves.txt", "nowhere/curves.png"])
def test_output_that_cannot_be_written_is_an_error_before_reading(plot, make_run, output):
    make_run("r1")
    code, _, error = plot(output=output)
    assert code == 2 and "--output" in error
