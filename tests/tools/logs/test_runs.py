"""Which runs there are and in which state, and DeepSpeed's timers, only from runs that were timed."""

from pathlib import Path

import pytest

from tests.filled_tables import filled_table
from tests.tools.conftest import write_run
from tools.logs.figures import text_of
from tools.logs.runs import find_runs, read_run
from tools.logs.sources import read_timers
from workshop.record.exercises import REPO


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "found 'the end', expected JSON"),
        ("[1]", "expected a JSON object"),
        ('{"exercise": "b", "state": "oom", "start_time": "yesterday"}', "expected an ISO 8601 time"),
        ('{"exercise": "b", "state": "oom", "start_time": "2026-11-21", "attempts": [0]}', "0', expected an object"),
    ],
)
def test_damaged_run_json_is_named_and_does_not_hide_other_runs(make_run, logs, text, problem):
    make_run("good")
    (make_run("bad") / "run.json").write_text(text)
    found = {run.folder.name: run for run in find_runs(logs)}
    assert found["good"].state == "completed"
    assert found["bad"].state == "unreadable"
    assert problem in found["bad"].problem and "bad/run.json" in found["bad"].problem
    assert len(find_runs(logs, experiment="baseline")) == 2


def test_reference_runs_and_those_in_a_folder_with_a_dot_are_left_out_unless_it_is_named(make_run, logs):
    own = make_run("own")
    for folder in (".choose", "reference/h200x1"):
        other = write_run(logs / folder, "other")
        assert [run.folder for run in find_runs(logs)] == [own]
        assert [run.folder for run in find_runs(logs / folder)] == [other]
    assert [run.folder for run in find_runs(logs / "reference")] == [other]


# From a run of stage 3 with offload on an H200: two steps of two micro-batches.
STEP = """\
[Rank 0] time (ms) | fwd_microstep: 70.25 | bwd_microstep: 93.53 | bwd_allreduce_microstep: 2.73
[Rank 0] time (ms) | optimizer_step: {optimizer}
[Rank 0] time (ms) | fwd_microstep: 71.02 | bwd_microstep: 100.01 | bwd_allreduce_microstep: 60.01
[Rank 0] time (ms) | fwd: 141.28 | bwd: 194.50 | bwd_inner: 132.07 | bwd_allreduce: 62.38 | step: {update}
{{'loss': '9.74', 'grad_norm': '6.283', 'learning_rate': '0', 'epoch': '0.25'}}
"""
TIMED = "".join(STEP.format(optimizer=time, update=3 * time) for time in (400.5, 200.25, 210.75))
SETTINGS = {"batch_size": 4, "grad_acc": 4, "fp16": True}


@pytest.mark.parametrize("garbled", ["1.2.3", "14[rank1]: done", "١٢", ".", "9" * 5000, "14"])
def test_garbled_number_costs_its_line(tmp_path: Path, garbled: str) -> None:
    end = "" if garbled == "14" else "\n"  # cut off
    (tmp_path / "train.out").write_text(f"[Rank 0] time (ms) | fwd: 1.5\n[Rank 0] time (ms) | fwd: {garbled}{end}")
    assert read_timers(tmp_path / "train.out") == {"fwd": [1.5]}


def test_medians_leave_the_warm_up_out_and_a_run_slowed_by_its_timers_is_in_no_other_table(make_run, logs) -> None:
    """Stage 3 + offload, 4 x 4, from a run with timers and a run without."""
    place = {"exercise": "deepspeed-single-gpu", "config": "zero3_offload", "precision": "fp16"}
    timed = place | {"settings": SETTINGS | {"timers": True}}
    summary = {"train/steps_per_second": 0.5, "train/samples_per_second": 8.0, "warmup_steps": 1}
    make_run("timed", timed, summary, **{"train.out": TIMED})
    make_run("plain", place | {"settings": SETTINGS}, summary | {"train/steps_per_second": 1.0}, **{"train.out": ""})
    tables = (filled_table(REPO / "deepspeed-single-gpu", number, logs) for number in ("4c", "4b"))
    parts, others = ([*table["Stage 3 + offload / 4 x 4, fp16"].values()] for table in tables)
    assert parts == ["141.3", "194.5", "62.4", "616.5", "205.5"]
    assert others[0] == "1,000.0"


def test_energy_of_a_few_seconds_is_no_figure(make_run) -> None:
    runs = [read_run(make_run(f"r{time_s}", summary={"energy_j": 900, "timed_s": time_s})) for time_s in (9.9, 10.1)]
    assert [text_of(run, "energy_j") for run in runs] == ["under 10 s", "900"]
