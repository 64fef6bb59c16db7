import pytest
from matplotlib.figure import Figure

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
    labels = [text.get_text().replace("\n", " ") for text in legend.get_texts()]
    runs = ["ddp, bloom-560m, fp32 (20261121-094500-p1)", "ddp, rank killed, bloom-560m, fp32 (20261121-094500-p2)"]
    assert labels == [runs[0], f"{runs[1]}: failed after step 2, resumed from step 1"]
    assert [list(line.get_xdata()) for line in figure.axes[0].lines if line.get_linestyle() == ":"] == [[1, 1]]
