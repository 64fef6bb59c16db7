import pytest

from tools.__main__ import main


@pytest.fixture
def plot(make_readme, logs, tmp_path, capsys):
    exercise = make_readme("# Baseline\n").parent

    def plot(*options: str, output: str = "curves.png") -> tuple[int, str, str]:
        code = main(["plot", str(exercise), "--logs", str(logs), "--output", str(tmp_path / output), *options])
        return code, *capsys.readouterr()

    return plot


def test_plot_is_drawn_from_the_runs_that_have_logs(plot, make_run, tmp_path):
    make_run("r1")
    make_run("r2", {"state": "failed"}, **{"steps.csv": None, "gpu_memory.csv": None})
    code, printed, complaint = plot()
    assert code == 0 and printed == f"wrote {tmp_path / 'curves.png'}\n"
    assert "r2: no steps.csv and no GPU log (failed)" in complaint
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_loss_over_examples_needs_a_log_that_counts_them(plot, make_run):
    make_run("r1", **{"gpu_memory.csv": None})
    assert plot("--over", "time")[0] == 0
    code, _, error = plot("--over", "examples")
    assert code == 2 and "none of the 1 runs" in error
    steps = "step,step_time_s,tokens,real_tokens,loss,epoch,samples\n1,0.5,2048,700,2.5,0.25,16\n"
    make_run("r2", **{"gpu_memory.csv": None, "steps.csv": steps})
    assert plot("--over", "examples")[0] == 0


def test_many_runs_are_not_drawn_in_colours_that_repeat(plot, make_run):
    for number in range(11):
        make_run(f"r{number}", **{"gpu_memory.csv": None})
    assert "the newest 10 of 11 runs are drawn" in plot()[2]


def test_plain_output_is_a_link_from_the_readme(plot, make_run):
    make_run("r1", **{"gpu_memory.csv": None})
    assert plot("--plain")[1] == "![Training loss and GPU memory of baseline](../curves.png)\n"


def test_nothing_to_draw_is_an_error_and_no_runs_another(plot, make_run):
    assert plot()[0] == 3
    make_run("r1", **{"steps.csv": None, "gpu_memory.csv": None})
    code, _, error = plot()
    assert code == 2 and "none of the 1 runs has steps.csv or a GPU log" in error


@pytest.mark.parametrize("output", ["curves.txt", "nowhere/curves.png"])
def test_output_that_cannot_be_written_is_an_error_before_reading(plot, make_run, output):
    make_run("r1")
    code, _, error = plot(output=output)
    assert code == 2 and "--output" in error
