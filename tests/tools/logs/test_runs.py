import os
import time

import pytest

from tools.logs.runs import find_runs, read_run


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


def test_reference_runs_of_other_machines_are_not_mixed_with_one_s_own(make_run, logs):
    own = make_run("own")
    reference = logs / "reference" / "h200x1" / "baseline" / "theirs"
    reference.parent.mkdir(parents=True)
    make_run("theirs").rename(reference)
    assert [run.folder for run in find_runs(logs)] == [own]
    assert [run.folder for run in find_runs(logs / "reference")] == [reference]
    assert [run.folder for run in find_runs(logs / "reference" / "h200x1")] == [reference]
