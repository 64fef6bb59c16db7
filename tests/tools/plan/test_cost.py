"""The times that READMEs promise: those of the planner, of all runs that a participant is told to start."""

import pytest

from tests.launching import REPO
from tools.__main__ import main
from tools.plan.cost import cost, must_do, table
from tools.plan.gpus import GPUS
from tools.plan.predict import predict
from tools.plan.submitted_lines import workload_of
from tools.submit.submissions import exercise_files, read, read_argument


@pytest.mark.parametrize("file", exercise_files([]), ids=lambda path: path.parent.name)
def test_every_exercise_says_which_of_its_runs_everybody_does(file) -> None:
    lines = read(file, {})
    required = must_do(lines)
    assert required and all(line.count("nodes") == 1 for line in required), "a laptop or one host must do for these"
    assert cost(required, GPUS["h200"]).gpu_hours <= cost(lines, GPUS["h200"]).gpu_hours


def test_time_is_the_planners_and_of_a_run_that_is_not_planned_the_reference_runs() -> None:
    lines = read(REPO / "fsdp/submit.txt", {})
    expected_s = [one.ranges["total_runtime_s"].expected for one in predict([*map(workload_of, lines)], GPUS["h200"])]
    found = cost(lines, GPUS["h200"])
    assert (found.runs, found.gpus) == (len(lines), (1, 8))
    assert found.minutes == pytest.approx(sum(expected_s) / 60)
    assert found.gpu_hours > cost([line for line in lines if line.count("nodes") == 1], GPUS["h200"]).gpu_hours
    one, two = (cost([read_argument("speed-ladder/peers.slurm", {})] * count, GPUS["h200"]) for count in (1, 2))
    assert 0.1 < one.minutes < 2
    assert two.minutes == 2 * one.minutes and one.gpu_hours == pytest.approx(one.minutes / 60)


def test_exercise_that_nobody_ran_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools.plan.cost._measured_s", lambda exercise, launcher: None)
    peers = [line for line in read(REPO / "speed-ladder/submit.txt", {}) if line.launcher == "peers.slurm"]
    assert table(peers, GPUS["h200"]).count("| not measured | not measured |") == 1


def test_total_is_a_table_by_exercise(capsys) -> None:
    assert main(["plan", "baseline", "resilience", "baseline", "--total", "--gpu", "h200"]) == 0
    *rows, empty, note = capsys.readouterr().out.splitlines()[2:]
    labels = [row.split(" | ")[0] for row in rows]
    together = ["| together: must do", "| together: all"]
    assert labels == ["| baseline: must do", "| resilience: must do", "| resilience: all", *together]
    assert not empty and note.startswith("Expected on NVIDIA H200; ")
