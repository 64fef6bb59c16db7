"""The times that READMEs promise: those of the planner, of all runs that a participant is told to start."""

import pytest

from tests.launching import REPO
from tools.__main__ import main
from tools.plan.cost import MUST_DO, times_s
from tools.plan.gpus import GPUS
from tools.plan.submitted_lines import predictions_of
from tools.submit.submissions import exercise_files, read, read_argument


@pytest.mark.parametrize("file", exercise_files([]), ids=lambda path: path.parent.name)
def test_every_exercise_says_which_of_its_runs_everybody_does(file) -> None:
    required = [line for line in read(file, {}) if line.contains(MUST_DO)]
    assert required and all(line.count("nodes") == 1 for line in required), "a laptop or one host must do for these"


def test_time_is_the_planners_and_of_a_run_that_is_not_planned_the_reference_runs() -> None:
    lines = read(REPO / "fsdp/submit.txt", {})
    found = [one.ranges["total_runtime_s"].expected for one in predictions_of(lines, GPUS["h200"])]
    assert times_s(lines, GPUS["h200"]) == pytest.approx(found)
    (measured,) = times_s([read_argument("further/speed-ladder/peers.slurm", {})], GPUS["h200"])
    assert 6 < measured < 120


def test_total_is_a_table_by_exercise(capsys) -> None:
    assert main(["plan", "baseline", "resilience", "baseline", "--total", "--gpu", "h200"]) == 0
    *rows, empty, note = capsys.readouterr().out.splitlines()[2:]
    labels = [row.split(" | ")[0] for row in rows]
    together = ["| together: must do", "| together: all"]
    assert labels == ["| baseline: must do", "| resilience: must do", "| resilience: all", *together]
    assert not empty and note.startswith("Expected on NVIDIA H200; ")
