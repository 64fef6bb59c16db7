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
from tools.commands.submit import started_again
from tools.errors import InputError
from tools.submit import submissions


@pytest.fixture(autouse=True)
def plain_shell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """None of the settings that the developer's shell may have, and a folder to stand in."""
    for name in ("LOG_DIR", "MODEL_NAME", "MODEL_INIT", "DATASET", "TRAIN_SIZE", "TOKENIZER_NAME", "FP16"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def submit(tmp_path: Path, logs: Path, capsys: pytest.CaptureFixture[str]):
    """submit("--dry-run") -> exit code, output, errors, of the exercise in tmp_path/ex."""

    def submit(*options: str) -> tuple[int, str, str]:
        code = main(["submit", str(tmp_path / "ex"), "--logs", str(logs), "--local", *options])
        return code, *capsys.readouterr()

    return submit


def records(logs: Path) -> list[dict[str, Any]]:
    found = [json.loads(path.read_text()) for path in logs.glob("*/*/run.json")]
    return sorted(found, key=lambda record: record["start_time"])


def test_a_failing_run_does_not_stop_the_rest(submit, tmp_path: Path, logs: Path) -> None:
    lines = "run.slurm early\nrun.slurm fail\n--nodes=2 run.slurm\nTRAIN_SIZE=9 --gpus-per-node=2 run.slurm\n"
    make_exercise(tmp_path, lines)
    code, output, progress = submit()
    assert code == 1 and [record["state"] for record in records(logs)] == ["failed", "completed"]
    assert records(logs)[1]["given"] == f"9 2 {tmp_path}"
    assert "skipped: needs SLURM for its 2 nodes  ex/submit.txt:3" in output and "error: no python on PATH" in output
    assert "| ex: TRAIN_SIZE=9 --gpus-per-node=2 run.slurm | completed |" in output
    assert "2 failed, 1 completed" in output
    assert output.endswith(f"fill the tables:\n  python -m tools fill ex --logs {logs}\n")
    assert "3/3" in progress


def test_what_is_completed_is_not_run_twice_and_only_and_match_choose(submit, tmp_path: Path, logs: Path) -> None:
    exercise = make_exercise(tmp_path, "run.slurm\nrun.slurm fail\n")
    submit()
    assert "skipped: completed in " in submit()[1]
    assert [record["state"] for record in records(logs)] == ["completed", "failed", "failed"]
    submit("--again", "--match", "run.slurm")
    assert len(records(logs)) == 5
    (exercise / "submit.txt").write_text("run.slurm\nrun.slurm fail\nFP16=false run.slurm\n")
    _, output, _ = submit("--only", "failed,oom", "--dry-run")
    assert "would run here  ex/submit.txt:2" in output
    assert "skipped: completed  ex/submit.txt:1" in output
    assert "skipped: missing  ex/submit.txt:3" in output
    for text in ("FP16=false run", "submit.txt:3  FP16"):  # as it stands in the file, and as it is printed
        assert "1 to run here" in submit("--dry-run", "--match", text)[1]
    code, _, error = submit("--only", "faild")
    assert code == 2 and "--only faild: unknown; states are missing, queued, running" in error


def test_settings_of_the_shell_make_other_runs_and_are_named_with_the_values_that_they_replace(
    submit, tmp_path: Path, logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mistral's lines ended in an error, because a tokenizer set for the others replaced the one that fits."""
    make_exercise(tmp_path, "run.slurm\nTRAIN_SIZE=9 TOKENIZER_NAME=sample run.slurm\n")
    for name, value in (("TOKENIZER_NAME", "gpt2"), ("TRAIN_SIZE", "8"), ("FP16", "false")):
        monkeypatch.setenv(name, value)
    _, output, _ = submit()
    assert "skipped: same as ex/submit.txt:1  ex/submit.txt:2" in output
    (warning,) = [line for line in output.splitlines() if line.startswith("warning: your shell")]
    assert warning.endswith(" that lines name: TOKENIZER_NAME=gpt2, not sample; TRAIN_SIZE=8, not 9")
    assert [record["given"].split()[0] for record in records(logs)] == ["8"]
    monkeypatch.delenv("TRAIN_SIZE")
    monkeypatch.delenv("TOKENIZER_NAME")
    assert "warning" not in submit()[1] and len(records(logs)) == 3


BY_HAND, RUNG = "run.slurm ds_configs/zero1.json", "RUNG=1_fewer run.slurm"


@pytest.mark.parametrize(
    ("line", "record", "settings", "skipped"),
    [
        ("run.slurm", {"submission": "run.slurm", "state": "running"}, {}, True),
        ("run.slurm", {"submission": "run.slurm"}, {"train_size": 500}, True),
        ("run.slurm", {"submission": "run.slurm"}, {"train_size": 1000}, False),  # of before an edit of env_vars.sh
        ("run.slurm --train-size 20", {"submission": "run.slurm --train-size 20"}, {"train_size": 20}, True),
        (BY_HAND, {"config": "zero1"}, {"train_size": 500, "fp16": True, "seed": 42}, True),
        (BY_HAND, {"config": "zero1"}, {"train_size": 128}, False),
        (RUNG, {}, {"rung": "1_fewer", "train_size": 99}, True),
        (RUNG, {}, {"rung": "1_fewer", "train_size": 500}, False),
    ],
)
def test_line_whose_run_has_the_same_settings_is_not_run_again(
    submit, tmp_path: Path, make_run, logs: Path, line: str, record: dict, settings: dict, skipped: bool
) -> None:
    exercise = make_exercise(tmp_path, f"{line}\n")
    (exercise / ".env").touch()
    (exercise / "1_fewer.env").write_text('export TRAIN_SIZE="${TRAIN_SIZE:-99}"\n')
    env_file = exercise / "env_vars.sh"
    env_file.write_text('export RUNG="${RUNG:-}"\nsource "$RUNG.env"\n' + env_file.read_text())
    make_run("r1", {"exercise": "ex", "settings": settings} | record)
    submit()
    assert len(records(logs)) == (1 if skipped else 2)


def test_two_data_sets_of_one_file_name_are_two_runs(submit, tmp_path: Path, logs: Path, monkeypatch) -> None:
    make_exercise(tmp_path, "run.slurm\n")
    for folder in ("/one", "/other"):
        monkeypatch.setenv("DATASET", f"{folder}/rows.jsonl")
        submit()
    assert "skipped: completed" in submit()[1]
    texts = [record["submission"] for record in records(logs)]
    assert texts == ["DATASET=/one/rows.jsonl run.slurm", "DATASET=/other/rows.jsonl run.slurm"]


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
def test_runs_side_by_side_share_no_gpu_and_no_processor(submit, tmp_path: Path, logs: Path, monkeypatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,7")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)  # nproc would obey it
    exercise = make_exercise(tmp_path, "run.slurm one two\nrun.slurm two one\n")
    (exercise / "run.slurm").write_text(MEETING)
    assert submit("--jobs", "2")[0] == 0
    half = len(os.sched_getaffinity(0)) // 2
    given = [(logs / f"given-{name}").read_text() for name in ("one", "two")]
    assert given == [f"GPU {gpu}, processors {half}\n" for gpu in (5, 7)]


@two_processors
def test_more_jobs_or_gpus_than_there_are_side_by_side_are_refused(submit, tmp_path, logs, monkeypatch, capsys) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    exercise = make_exercise(tmp_path, "run.slurm\n--gpus-per-node=2 run.slurm\n")
    for jobs, told in (
        ("2", "ex/submit.txt:2: --gpus-per-node=2, but with --jobs 2 each run has 1"),
        ("3", "--jobs 3: this machine has 2 "),
    ):
        code, _, error = submit("--jobs", jobs)
        assert code == 2 and told in error
    monkeypatch.setattr("tools.submit.slurm.available", lambda: True)
    monkeypatch.setattr("tools.submit.slurm.queue", dict)
    assert main(["submit", str(exercise), "--logs", str(logs), "--jobs", "2"]) == 2
    assert "--jobs 2: SLURM decides how many jobs run at a time" in capsys.readouterr().err
    assert records(logs) == []


def test_K1_mistyped_setting_of_the_shell_or_exercise_queues_nothing(
    submit, tmp_path, logs, monkeypatch, capsys
) -> None:
    monkeypatch.setenv("TRAINSIZE", "8")
    make_exercise(tmp_path, "run.slurm\n")
    code, _, error = submit()
    assert code == 2 and "TRAINSIZE=8 (did you mean TRAIN_SIZE?)" in error
    assert main(["submit", "basline", "--local", "--dry-run"]) == 2
    assert "basline: no folder with a submit.txt; those that have one: baseline" in capsys.readouterr().err
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
    Path(two_lines[1]).write_text("--gpus-per-node=16 fsdp/multi_gpu.slurm\n")
    assert main(["submit", *two_lines, "--logs", str(logs), "--local", "--dry-run"]) == 2
    assert "--gpus-per-node=16: a node of " in capsys.readouterr().err


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


@pytest.fixture
def stopped(logs: Path, make_run) -> Path:
    """A run that ended before its end, its launcher, and what it was given."""
    launcher = logs / ".code/1f3a/fsdp/multi_gpu.slurm"
    launcher.parent.mkdir(parents=True)
    launcher.touch()
    (launcher.parent / "env_vars.sh").write_text('export PYTHONPATH="$PYTHONPATH:."\n')
    started = {
        "command": [str(launcher), "a file.json"],
        "settings": {"TRAIN_SIZE": "64", "GRAD_ACC": "4", "PYTHONPATH": "elsewhere"},
    }
    given = {".resume.json": json.dumps(started)}
    record = {"exercise": "fsdp", "state": "failed", "gpus_per_node": 2, "submission": "multi_gpu.slurm"}
    return make_run("20261122-100000-p1", record, **given)


def test_run_starts_again_with_its_arguments_and_settings_whatever_the_shell_sets(stopped, logs) -> None:
    command, options, environment = started_again(Path(stopped.name), logs, {"GRAD_ACC": "8"})
    assert command == [str(logs / ".code/1f3a/fsdp/multi_gpu.slurm"), "a file.json"]
    assert options == ["--nodes=1", "--gpus-per-node=2"]
    assert environment == {
        **{"TRAIN_SIZE": "64", "GRAD_ACC": "4", "GPUS_PER_NODE": "2", "RESUME_RUN": str(stopped)},
        **{"SUBMISSION": "multi_gpu.slurm", "SHARDLAB": str(logs / ".code/1f3a")},
    }


def test_run_that_cannot_be_started_again_says_why(stopped, tmp_path, make_run, logs) -> None:
    for state in ("completed", "running"):
        with pytest.raises(InputError, match=f"{state}; expected a run that ended before its end"):
            started_again(make_run(state, {"state": state}), logs, {})
    (logs / ".code/1f3a/fsdp/multi_gpu.slurm").unlink()
    with pytest.raises(InputError, match=r"launcher .* is no longer there"):
        started_again(stopped, logs, {})
    (stopped / ".resume.json").unlink()
    with pytest.raises(InputError, match=r"\.resume.*expected a run of this version"):
        started_again(stopped, logs, {})
    with pytest.raises(InputError, match=r"no run\.json there"):
        started_again(tmp_path / "nowhere", logs, {})


@pytest.mark.parametrize("theirs", [".", ".resume.json", "../../.code/1f3a", "../../.code/1f3a/fsdp/multi_gpu.slurm"])
def test_somebody_elses_run_is_neither_proposed_nor_started(
    theirs: str, stopped: Path, make_run, logs: Path, monkeypatch, capsys
) -> None:
    """What its .resume.json names would run with this user's rights."""
    record = json.loads((stopped / "run.json").read_text()) | {"state": "preempted"}
    (stopped / "run.json").write_text(json.dumps(record))
    (stopped / "model/checkpoint-5").mkdir(parents=True)
    (stopped / "model/checkpoint-5/manifest.json").touch()
    assert main(["runs", "--logs", str(logs)]) == 0
    assert f"--resume {stopped}" in capsys.readouterr().out
    own_lstat, foreign = Path.lstat, (stopped / theirs).resolve()

    def lstat(path: Path) -> os.stat_result:
        found = own_lstat(path)
        return os.stat_result((*found[:4], found.st_uid + 1, *found[5:])) if path == foreign else found

    monkeypatch.setattr(Path, "lstat", lstat)
    with pytest.raises(InputError, match=r"not yours|expected a \.slurm of"):
        started_again(stopped, logs, {})
    if not theirs.startswith("../"):
        assert main(["runs", "--logs", str(logs)]) == 0
        assert "--resume" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"command": ["x"]}, r"started with .*/x; expected a \.slurm of"),
        ({"command": ["evil.slurm"]}, r"evil\.slurm; expected a \.slurm of"),
        ({"command": []}, "expected a run of this version"),
        ({"command": "x"}, "no longer there|started with|expected a run of this version"),
        ({"settings": {"BASH_ENV": "env"}}, r"\.resume\.json sets BASH_ENV; expected settings"),
        ({"settings": {"LD_PRELOAD": "x.so", "TRAIN_SIZE": "64"}}, "sets LD_PRELOAD"),
        ({"settings": {"TRAIN_SIZE": 64}}, "expected a run of this version"),
        ({"settings": None}, "expected a run of this version"),
    ],
)
def test_resume_json_starts_only_launchers_of_ours_with_settings(changes, told, stopped, logs, monkeypatch) -> None:
    monkeypatch.chdir(stopped)
    for name in ("x", "evil.slurm"):
        (stopped / name).touch()
    started = json.loads((stopped / ".resume.json").read_text())
    (stopped / ".resume.json").write_text(json.dumps(started | changes))
    with pytest.raises(InputError, match=told):
        started_again(stopped, logs, {})


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
