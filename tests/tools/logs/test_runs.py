import os
import time

import pytest

from tests.tools.conftest import figure_or_word
from tools.errors import InputError
from tools.logs.figures import figure
from tools.logs.runs import default_logs, find_runs, read_run


def age(folder, seconds):
    """Make every file of a run folder `seconds` old."""
    for path in folder.iterdir():
        os.utime(path, (time.time() - seconds,) * 2)


def test_running_job_that_writes_nothing_for_ten_minutes_is_lost(make_run):
    folder = make_run("r1", {"state": "running", "end_time": ...})
    age(folder, 601)
    assert read_run(folder).state == "lost"
    (folder / "gpu_memory.csv").touch()
    assert read_run(folder).state == "running"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "found 'the end', expected JSON"),
        ('{"exercise": "baseline",', "expected JSON"),
        ("[1]", "expected a JSON object"),
        ('{"exercise": "baseline", "state": "completed"}', "no 'start_time'"),
        ('{"exercise": "b", "state": "done", "start_time": "2026-11-21T09:45:00+00:00"}', "state 'done'"),
        ('{"exercise": "b", "state": "oom", "start_time": "yesterday"}', "expected an ISO 8601 time"),
        ('{"exercise": "b", "state": "oom", "start_time": "2026-11-21", "model": "x"}', "model: 'x'"),
        ('{"exercise": "b", "state": "oom", "start_time": "2026-11-21", "attempts": [0]}', "0', expected an object"),
        (
            '{"exercise": "b", "state": "oom", "start_time": "2026-11-21", "attempts": [{"resumed_step": "x"}]}',
            "attempts.resumed_step: 'x'",
        ),
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


def test_attempt_without_its_checkpoint_s_step_is_not_recorded(make_run):
    run = read_run(make_run("r1", {"attempts": [{"state": "failed"}]}))
    assert (figure_or_word(run, "fault_state"), figure_or_word(run, "resumed_step")) == ("failed", "not recorded")


def test_reference_runs_of_other_machines_are_not_mixed_with_one_s_own(make_run, logs):
    own = make_run("own")
    reference = logs / "reference" / "h200x1" / "baseline" / "theirs"
    reference.parent.mkdir(parents=True)
    make_run("theirs").rename(reference)
    assert [run.folder for run in find_runs(logs)] == [own]
    assert [run.folder for run in find_runs(logs / "reference")] == [reference]
    assert [run.folder for run in find_runs(logs / "reference" / "h200x1")] == [reference]


def test_runs_are_in_order_of_their_start_not_of_their_names(make_run, logs):
    make_run("b", {"start_time": "2026-11-21T08:00:00+00:00"})
    make_run("a", {"start_time": "2026-11-21T11:00:00+02:00"})  # 09:00 UTC
    assert [run.folder.name for run in find_runs(logs)] == ["b", "a"]


def test_job_that_failed_before_rank_0_wrote_is_known_by_its_settings(make_run):
    unknown = {"world_size": ..., "model": ..., "train_examples": ..., "nodes": 2, "gpus_per_node": 4}
    settings = {"model_name": "bigscience/bloom-3b", "train_size": 10_000}
    run = read_run(make_run("r1", unknown | {"state": "oom", "settings": settings}))
    assert (run.world_size, run.model, run.train_examples) == (8, "bloom-3b", 10_000)
    assert run.examples_per_gpu == 1250


def test_run_without_any_log_has_no_evidence_and_no_error(make_run):
    nothing = dict.fromkeys(["train.out", "gpu_memory.csv", "cpu_memory.txt", "steps.csv"])
    run = read_run(make_run("r1", summary=None, **nothing))
    names = ("train_loss", "peak_gpu_mib", "peak_cpu_pss_mib", "optimizer_steps")
    assert [figure(run, name) for name in names] == [None] * 4
    words = ["no train_loss", "no GPU log", "no PSS log", "no step times"]
    assert [figure_or_word(run, name) for name in names] == words


def test_reason_comes_from_the_output_when_the_launcher_gave_none(make_run):
    run = read_run(make_run("r1", {"state": "failed"}, **{"train.out": "x\nValueError: bad batch\n"}))
    assert run.reason == "train.out:2: ValueError: bad batch"


def test_runtime_of_a_job_without_an_end_is_unknown(make_run):
    assert read_run(make_run("r1")).runtime_s == 300
    assert read_run(make_run("r2", {"state": "failed", "end_time": ...})).runtime_s is None


def test_missing_logs_folder_is_named(tmp_path):
    with pytest.raises(InputError, match="nowhere: no such folder"):
        find_runs(tmp_path / "nowhere")


def test_LOG_DIR_is_the_default(monkeypatch, tmp_path):
    monkeypatch.setenv("LOG_DIR", str(tmp_path))
    assert default_logs() == tmp_path
