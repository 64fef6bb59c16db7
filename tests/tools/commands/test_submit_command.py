"""submit without SLURM: every line runs once, whatever becomes of the others."""

import argparse
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.exercise_folder import REPO, make_exercise
from tools.__main__ import main, parser
from tools.commands import submit as submit_command
from tools.submit import submissions


@pytest.fixture(autouse=True)
def plain_shell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """None of the settings that the developer's shell may have, and a folder to stand in."""
    for name in ("LOG_DIR", "MODEL_NAME", "MODEL_INIT", "DATASET", "TRAIN_SIZE", "TOKENIZER_NAME", "FP16"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


def submit(exercise: Path, logs: Path, *options: str) -> int:
    return main(["submit", str(exercise), "--logs", str(logs), "--local", *options])


def records(logs: Path) -> list[dict[str, Any]]:
    found = [json.loads(path.read_text()) for path in logs.glob("*/*/run.json")]
    return sorted(found, key=lambda record: record["start_time"])


def test_a_failing_run_does_not_stop_the_rest(tmp_path: Path, logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = "run.slurm early\nrun.slurm fail\n--nodes=2 run.slurm\nTRAIN_SIZE=9 --gpus-per-node=2 run.slurm\n"
    exercise = make_exercise(tmp_path, lines)
    assert submit(exercise, logs) == 1
    output, progress = capsys.readouterr()
    assert [record["state"] for record in records(logs)] == ["failed", "completed"]
    assert records(logs)[1]["given"] == f"9 2 {tmp_path}"
    assert "skipped: needs SLURM for its 2 nodes  ex/submit.txt:3" in output
    assert "error: no python on PATH" in output
    assert "| ex: TRAIN_SIZE=9 --gpus-per-node=2 run.slurm | completed |" in output
    assert "2 failed, 1 completed" in output
    assert output.endswith(f"fill the tables:\n  python -m tools fill ex --logs {logs}\n")
    assert "3/3" in progress


def test_what_is_completed_is_not_run_twice(tmp_path: Path, logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    exercise = make_exercise(tmp_path, "run.slurm\nrun.slurm fail\n")
    submit(exercise, logs)
    submit(exercise, logs)
    assert [record["state"] for record in records(logs)] == ["completed", "failed", "failed"]
    assert "skipped: completed in " in capsys.readouterr().out
    submit(exercise, logs, "--again", "--match", "run.slurm")
    assert len(records(logs)) == 5


def test_a_completed_tiny_run_does_not_count_for_the_real_one(
    tmp_path: Path, logs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    exercise = make_exercise(tmp_path, "run.slurm\nTRAIN_SIZE=10000 run.slurm\n")
    monkeypatch.setenv("TRAIN_SIZE", "8")
    submit(exercise, logs)
    assert "skipped: same as ex/submit.txt:1  ex/submit.txt:2" in capsys.readouterr().out
    assert [record["given"].split()[0] for record in records(logs)] == ["8"]
    monkeypatch.delenv("TRAIN_SIZE")
    submit(exercise, logs)
    assert len(records(logs)) == 3


@pytest.mark.parametrize(
    "text",
    [
        "TRAIN_SIZE=9 FP16=false --mem=1G",
        "--mem=1G run.slurm",
        "FP16=false TRAIN_SIZE=9",
        "ex/submit.txt:2  FP16",
    ],
)
def test_match_finds_the_line_as_it_stands_in_the_file_and_as_it_is_printed(
    tmp_path: Path, logs: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    exercise = make_exercise(tmp_path, "run.slurm\nTRAIN_SIZE=9   FP16=false --mem=1G run.slurm\n")
    assert submit(exercise, logs, "--dry-run", "--match", text) == 0
    assert "1 to run here" in capsys.readouterr().out


def test_only_selects_by_the_newest_state(tmp_path: Path, logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    exercise = make_exercise(tmp_path, "run.slurm\nrun.slurm fail\n")
    submit(exercise, logs)
    (exercise / "submit.txt").write_text("run.slurm\nrun.slurm fail\nFP16=false run.slurm\n")
    capsys.readouterr()
    submit(exercise, logs, "--only", "failed,oom", "--dry-run")
    output = capsys.readouterr().out
    assert "would run here  ex/submit.txt:2" in output
    assert "skipped: completed  ex/submit.txt:1" in output
    assert "skipped: missing  ex/submit.txt:3" in output
    assert submit(exercise, logs, "--only", "faild") == 2
    assert "--only faild: unknown; states are missing, queued, running" in capsys.readouterr().err


def test_a_run_that_is_still_going_on_is_not_started_again(tmp_path: Path, make_run, logs: Path) -> None:
    exercise = make_exercise(tmp_path, "run.slurm\n")
    make_run("r1", {"exercise": "ex", "state": "running", "submission": "run.slurm"})
    assert submit(exercise, logs, "--again") == 0
    assert len(records(logs)) == 1


@pytest.mark.parametrize(
    ("settings", "skipped"),
    [({"train_size": 500, "fp16": True, "seed": 42}, True), ({"train_size": 128}, False), ({"seed": 7}, False)],
    ids=["same", "other_size", "other_default"],
)
def test_a_run_started_by_hand_counts_if_its_settings_are_the_same(
    tmp_path: Path, make_run, logs: Path, settings: dict[str, Any], skipped: bool
) -> None:
    exercise = make_exercise(tmp_path, "run.slurm ds_configs/zero1.json\n")
    make_run("r1", {"exercise": "ex", "config": "zero1", "settings": settings})
    submit(exercise, logs)
    assert len(records(logs)) == (1 if skipped else 2)


@pytest.mark.parametrize(("train_size", "skipped"), [(99, True), (500, False)], ids=["the_rungs", "the_exercises"])
def test_settings_of_a_rung_come_before_the_exercises(
    tmp_path: Path, make_run, logs: Path, train_size: int, skipped: bool
) -> None:
    exercise = make_exercise(tmp_path, "RUNG=1_fewer run.slurm\n")
    (exercise / "1_fewer.env").write_text('export TRAIN_SIZE="${TRAIN_SIZE:-99}"\n')
    env_file = exercise / "env_vars.sh"
    env_file.write_text('export RUNG="${RUNG:-}"\nsource "$RUNG.env"\n' + env_file.read_text())
    make_run("r1", {"exercise": "ex", "settings": {"rung": "1_fewer", "train_size": train_size}})
    submit(exercise, logs)
    assert len(records(logs)) == (1 if skipped else 2)


def test_an_edit_of_env_vars_makes_a_new_run(tmp_path: Path, make_run, logs: Path) -> None:
    exercise = make_exercise(tmp_path, "run.slurm\n")
    make_run("r1", {"exercise": "ex", "submission": "run.slurm", "settings": {"train_size": 500}})
    submit(exercise, logs)
    assert len(records(logs)) == 1
    (exercise / "env_vars.sh").write_text('export TRAIN_SIZE="${TRAIN_SIZE:-1000}"\n')
    submit(exercise, logs)
    assert len(records(logs)) == 2


def test_a_run_whose_arguments_change_settings_is_not_run_for_ever(tmp_path: Path, make_run, logs: Path) -> None:
    exercise = make_exercise(tmp_path, "run.slurm --train-size 20\n")
    submission = "run.slurm --train-size 20"
    make_run("r1", {"exercise": "ex", "submission": submission, "settings": {"train_size": 20}})
    submit(exercise, logs)
    assert len(records(logs)) == 1


def test_an_unknown_exercise_is_an_error_that_lists_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["submit", "basline", "--local", "--dry-run"]) == 2
    assert "basline: no folder with a submit.txt; those that have one: baseline" in capsys.readouterr().err


two_processors = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one processor only")


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=two_processors)])
def test_interrupting_ends_what_runs_and_starts_no_other(tmp_path: Path, logs: Path, jobs: int) -> None:
    exercise = make_exercise(tmp_path, "run.slurm 1\nrun.slurm 2\nrun.slurm 3\n")
    launcher = f"#!/bin/bash\ntrap 'touch {tmp_path}/ended-$1; exit 143' TERM\ntouch {tmp_path}/begun-$1\n"
    (exercise / "run.slurm").write_text(launcher + "while :; do sleep 0.1; done\n")
    command = [sys.executable, "-m", "tools", "submit", str(exercise), "--logs", str(logs), "--local", f"--jobs={jobs}"]
    environment = os.environ | {"PYTHONPATH": str(REPO), "CUDA_VISIBLE_DEVICES": ""}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as runner:
        deadline_s = time.monotonic() + 120
        while len([*tmp_path.glob("begun-*")]) < jobs and time.monotonic() < deadline_s:
            time.sleep(0.05)
        runner.send_signal(signal.SIGINT)
        output, _ = runner.communicate(timeout=120)
    assert len([*tmp_path.glob("begun-*")]) == len([*tmp_path.glob("ended-*")]) == jobs
    assert runner.returncode == 130
    assert f"{jobs} cancelled, {3 - jobs} not started" in output


# Waits for the other run, then says which part of the machine it was given.
MEETING = """\
#!/bin/bash
touch "$LOG_DIR/here-$1"
for _ in $(seq 2400); do [ -e "$LOG_DIR/here-$2" ] && break; sleep 0.05; done
[ -e "$LOG_DIR/here-$2" ] || { echo "error: the other run is not there" >&2; exit 1; }
echo "GPU $CUDA_VISIBLE_DEVICES, processors $(nproc)" > "$LOG_DIR/given-$1"
"""


@two_processors
def test_runs_side_by_side_share_no_gpu_and_no_processor(
    tmp_path: Path, logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,7")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)  # nproc would obey it
    exercise = make_exercise(tmp_path, "run.slurm one two\nrun.slurm two one\n")
    (exercise / "run.slurm").write_text(MEETING)
    logs.mkdir(exist_ok=True)
    assert submit(exercise, logs, "--jobs", "2") == 0
    half = len(os.sched_getaffinity(0)) // 2
    given = [(logs / f"given-{name}").read_text() for name in ("one", "two")]
    assert given == [f"GPU {gpu}, processors {half}\n" for gpu in (5, 7)]


@two_processors
def test_more_gpus_than_a_run_has_side_by_side_names_the_line(
    tmp_path: Path, logs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    exercise = make_exercise(tmp_path, "run.slurm\n--gpus-per-node=2 run.slurm\n")
    assert submit(exercise, logs, "--jobs", "2") == 2
    assert "ex/submit.txt:2: --gpus-per-node=2, but with --jobs 2 each run has 1" in capsys.readouterr().err
    assert submit(exercise, logs, "--jobs", "3") == 2
    assert "--jobs 3: this machine has 2 " in capsys.readouterr().err
    assert submit(exercise, logs, "--jobs", "3", "--dry-run") == 2
    assert records(logs) == []


def test_number_of_jobs_is_slurm_s_to_decide_where_it_queues(
    tmp_path: Path, logs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tools.submit.slurm.available", lambda: True)
    monkeypatch.setattr("tools.submit.slurm.queue", dict)
    assert main(["submit", str(make_exercise(tmp_path, "run.slurm\n")), "--logs", str(logs), "--jobs", "2"]) == 2
    assert "--jobs 2: SLURM decides how many jobs run at a time" in capsys.readouterr().err


def test_K1_mistyped_setting_of_the_shell_queues_nothing(
    tmp_path: Path, logs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRAINSIZE", "8")
    assert submit(make_exercise(tmp_path, "run.slurm\n"), logs) == 2
    assert "TRAINSIZE=8 (did you mean TRAIN_SIZE?)" in capsys.readouterr().err
    assert records(logs) == []


LARGE = "BATCH_SIZE=16 GRAD_ACC=1 --gpus-per-node=4 fsdp/multi_gpu.slurm fsdp_configs/ddp.json"
SMALL = "--gpus-per-node=4 fsdp/multi_gpu.slurm fsdp_configs/full_shard.json"


@pytest.fixture
def two_lines(tmp_path: Path) -> list[str]:
    (tmp_path / "runs.txt").write_text(f"{LARGE}\n{SMALL}\n")
    return ["--list", str(tmp_path / "runs.txt"), "--gpu", "v100-32gb"]


def test_each_line_is_told_whether_it_fits(two_lines, logs, capsys) -> None:
    assert main(["submit", *two_lines, "--logs", str(logs), "--local", "--dry-run"]) == 0
    large, small = [line for line in capsys.readouterr().out.splitlines() if line.startswith("v100-32gb")]
    assert large.startswith("v100-32gb  does not fit: 49,395 MiB allocated of 32,480")
    assert small.startswith("v100-32gb  fits: 5,679 MiB allocated of 32,480")


@pytest.mark.parametrize(
    ("terminal", "answer", "yes", "started"),
    [(True, "n", [], 1), (True, "y", [], 2), (True, None, ["--yes"], 2), (False, None, [], 2)],
)
def test_a_run_that_cannot_fit_is_asked_about_where_somebody_can_answer(
    terminal: bool, answer: str | None, yes: list[str], started: int, two_lines, monkeypatch, capsys
) -> None:
    arguments = parser().parse_args(["submit", *two_lines, *yes], argparse.Namespace(after_dashes=[]))
    monkeypatch.setattr("sys.stdin", io.StringIO("" if answer is None else f"{answer}\n"))
    monkeypatch.setattr("sys.stdin.isatty", lambda: terminal)
    lines = submissions.read(arguments.list, {})
    assert len(submit_command._willing(lines, arguments)) == started
    assert ("nobody is here to ask" in capsys.readouterr().out) == (not terminal)


def test_more_gpus_than_a_node_holds_are_refused(tmp_path: Path, logs: Path, capsys) -> None:
    (tmp_path / "runs.txt").write_text("--gpus-per-node=16 fsdp/multi_gpu.slurm\n")
    words = [
        "submit",
        "--list",
        str(tmp_path / "runs.txt"),
        "--gpu",
        "h200",
        "--logs",
        str(logs),
        "--local",
        "--dry-run",
    ]
    assert main(words) == 2
    assert "--gpus-per-node=16: a node of NVIDIA H200 holds 8; expected at most 8" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["fsdp"], "expected no fsdp beside it"),
        (["--only", "failed", "--jobs", "2"], "expected no --only, --jobs beside it"),
        (["--local", "--", "--gpus-per-node=1"], "expected no sbatch options beside it"),
    ],
)
def test_resume_refuses_what_it_would_ignore(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["submit", "--resume", "logs/fsdp/run", *words]) == 2
    assert f"--resume logs/fsdp/run: the run goes on as it was started; {told}" in capsys.readouterr().err


def test_value_of_a_line_that_the_shell_replaces_is_named_with_both_values(
    tmp_path: Path, logs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Mistral's lines ended in an error, because a tokenizer set for the others replaced the one that fits."""
    lines = "TOKENIZER_NAME=sample run.slurm\nTRAIN_SIZE=9 run.slurm fail\nTRAIN_SIZE=8 FP16=false run.slurm\n"
    exercise = make_exercise(tmp_path, lines)
    for name, value in (("TOKENIZER_NAME", "gpt2"), ("TRAIN_SIZE", "8"), ("FP16", "false")):
        monkeypatch.setenv(name, value)
    submit(exercise, logs, "--dry-run")
    (warning,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("warning: your shell")]
    assert warning.endswith(" that lines name: TOKENIZER_NAME=gpt2, not sample; TRAIN_SIZE=8, not 9")
    monkeypatch.delenv("TOKENIZER_NAME")
    monkeypatch.delenv("TRAIN_SIZE")
    submit(exercise, logs, "--dry-run")
    assert "warning" not in capsys.readouterr().out
