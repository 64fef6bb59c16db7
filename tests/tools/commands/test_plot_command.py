from matplotlib.figure import Figure

from tools.__main__ import main


def test_run_that_went_on_says_after_which_fault_and_from_which_step(make_run, logs, tmp_path, monkeypatch):
    undisturbed = {"config": "ddp", "settings": {"fault": "none"}}
    attempt = {"state": "failed", "last_step": 2, "resumed_step": 1}
    make_run("20261121-094500-p1", undisturbed)
    make_run("20261121-094500-p2", undisturbed | {"settings": {"fault": "rank_killed"}, "attempts": [attempt]})
    drawn = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: drawn.append(figure))
    assert main(["plot", "baseline", "--logs", str(logs), "--output", str(tmp_path / "curves.png")]) == 0
    (figure,) = drawn
    (legend,) = figure.legends
    labels = [text.get_text().replace("\n", " ") for text in legend.get_texts()]
    runs = ["ddp, bloom-560m, fp32 (20261121-094500-p1)", "ddp, rank killed, bloom-560m, fp32 (20261121-094500-p2)"]
    assert labels == [runs[0], f"{runs[1]}: failed after step 2, resumed from step 1"]
    assert [list(line.get_xdata()) for line in figure.axes[0].lines if line.get_linestyle() == ":"] == [[1, 1]]
