"""Seconds to a score come from steps of scored runs and the step time of runs alone."""

from pathlib import Path

import pytest

from tests.tools.conftest import write_run
from tools import plots
from tools.__main__ import main
from tools.commands.score import reached

SETTINGS = {
    **{"model_name": "small", "batch_size": 16, "grad_acc": 1, "packing": False, "bf16": True, "learning_rate": 2e-4},
    **{"compile": False, "num_epochs": 2},
}
SWITCHES = {"0_textbook": {}, "13_graph": {"compile": True, "cuda_graph": True}}


def write(logs: Path, name: str, rung: str, seed: int, step_s: float, summary: dict, **settings: object) -> None:
    own = SETTINGS | SWITCHES[rung] | {"rung": rung, "seed": seed} | settings
    facts = dict.fromkeys(("exercise", "experiment"), "speed-ladder") | {"settings": own}
    rows = (f"{step},{5.0 if step == 1 else step_s},8192,8192,1.0\n" for step in range(1, 8))
    steps = "step,step_time_s,tokens,real_tokens,loss\n" + "".join(rows)
    record = facts | {"start_time": "2026-11-29T06:00:00+00:00", "end_time": None}
    write_run(logs, name, record, {"warmup_steps": 1} | summary, **{"steps.csv": steps})


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Two recipes of one function, of which only the textbook is scored; the first step takes 5 s."""
    for seed, scores in ((42, {"10": 40.0, "20": 54.0, "30": 58.0}), (43, {"10": 50.0, "20": 62.0, "30": 56.0})):
        summary = {"exact_match_by_step": scores, "exact_match": scores["30"]}
        write(tmp_path / "a", f"scored{seed}", "0_textbook", seed, 9.0, summary)
    for rung, step_s in (("0_textbook", 2.0), ("13_graph", 0.1)):
        timed = {"timed_start": "2026/11/29 07:00:25.000"}  # an hour east, 20 s after the start without the first step
        write(tmp_path / "b", rung, rung, 42, step_s, timed, repeat=1)
    return tmp_path


def test_a_recipe_has_its_own_step_time_and_the_scores_of_its_function(logs, capsys) -> None:
    assert main(["score", "--logs", str(logs)]) == 0
    header, _, textbook, graph = (line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines())
    slow, fast = (dict(zip(header, row, strict=True)) for row in (textbook, graph))
    assert (slow["Recipe"], fast["Recipe"]) == ("0 textbook, 2e-4", "13 graph, compiled, 2e-4")
    assert (slow["Seconds to 55 %"], fast["Seconds to 55 %"]) == ("50.0", "2.5"), "seed 42 after 30 steps, 43 after 20"
    assert fast["Seconds to 60 %"] == "not in all"
    assert (fast["55 %, with compilation (s)"], fast["55 %, with start, too (s)"]) == ("7.4", "27")
    assert fast["Times sooner, least"] == fast["Times sooner, most"] == "20.0"
    assert fast["Exact match at the end (%)"] == "57.0"


def test_scores_of_more_passes_are_those_of_another_recipe(logs: Path, capsys) -> None:
    write(
        logs / "a",
        "scored44",
        "13_graph",
        44,
        9.0,
        {"exact_match_by_step": {"10": 60.0, "20": 60.0}, "exact_match": 60.0},
        num_epochs=4,
    )
    assert main(["score", "--logs", str(logs)]) == 0
    rows = [line.strip("| ").split(" | ")[:2] for line in capsys.readouterr().out.splitlines()[2:]]
    names = "0 textbook, 2e-4", "13 graph, compiled, 2e-4"
    assert sorted(rows) == sorted(
        [[name + more, seeds] for name in names for more, seeds in (("", "2"), (", 4 passes", "1"))]
    )


def test_curve_is_drawn_although_its_seeds_are_scored_after_other_steps(logs: Path, monkeypatch) -> None:
    file = logs / "a/speed-ladder/scored43/summary.json"
    file.write_text(file.read_text().replace('"10"', '"9"').replace('"20"', '"19"').replace('"30"', '"29"'))
    drawn = []
    monkeypatch.setattr(plots, "label", lambda axes, *_: drawn.extend([*line.get_xdata()] for line in axes.lines))
    assert main(["score", "--logs", str(logs), "--output", str(logs / "score.svg")]) == 0
    assert drawn == [[19.0, 39.0, 59.0], pytest.approx([0.95, 1.95, 2.95])]


@pytest.mark.parametrize(("threshold", "step"), [(50, 30), (55, 40), (60, None)])
def test_one_lucky_scoring_is_no_score(threshold: float, step: int | None) -> None:
    assert reached({10: 40.0, 20: 56.0, 30: 53.0, 40: 58.0}, threshold) == step
