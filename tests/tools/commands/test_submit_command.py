"""submit without SLURM: every line runs once, whatever becomes of the others."""

import argparse
import io
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.exercise_folder import DECLARED, make_exercise
from tests.launching import REPO, program, wait_until
from tools.__main__ import main, parser
from tools.commands import submit as submit_command
from tools.commands.submit import started_again
from tools.errors import InputError
from tools.submit import local_runs, submissions


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


def test_a_failing_run_does_not_stop_the_rest(submit, tmp_path: Path, logs: Path, monkeypatch) -> None:
    monkeypatch.setattr(local_runs, "_PROGRESS_S", 0)
    lines = "run.slurm early\nrun.slurm fail\n--nodes=2 run.slurm\nTRAIN_SIZE=9 --gpus-per-node=2 run.slurm\n"
    make_exercise(tmp_path, lines)
    code, output, _ = submit()
    assert code == 1 and [record["state"] for record in records(logs)] == ["failed", "completed"]
    assert records(logs)[1]["given"] == f"9 2 {tmp_path}"
    assert "skipped: needs SLURM for its 2 nodes  ex/submit.txt:3" in output and "error: no python on PATH" in output
    assert "| ex: TRAIN_SIZE=9 --gpus-per-node=2 run.slurm | completed |" in output
    assert "2 failed, 1 completed" in output
    assert output.endswith(f"fill the tables:\n  python -m tools fill ex --logs {logs}\n")
    _, _, during = output.partition("[3/3] ex/submit.txt:4 ...\n")
    assert re.match(r" +0 s  \S", during), "what the launcher has printed so far"


def test_list_in_the_exercise_s_own_folder_and_refused_by_sbatch(tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(make_exercise(tmp_path, "run.slurm\n"))
    program(tmp_path / "bin/squeue", "")
    program(tmp_path / "bin/sbatch", 'echo "$@" >&2; exit 1')
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    assert main(["submit", "--list", "submit.txt"]) == 1
    out, error = capsys.readouterr()
    assert out == "0 queued, 1 refused by sbatch\n"
    assert error.startswith("error: ex/submit.txt:1: ") and error.endswith("/ex/run.slurm\n")


def test_stopped_run_is_continued_here_although_there_is_slurm(submit, tmp_path, logs, monkeypatch, capsys) -> None:
    """The printed command queued it, also that of the run itself."""
    launcher = make_exercise(tmp_path, "run.slurm\n") / "run.slurm"
    saves = 'mkdir -p "$folder/model/checkpoint-5"; touch "$folder"/{.resume.json,model/checkpoint-5/manifest.json}\n'
    text = launcher.read_text().replace("state=completed", "state=preempted", 1)
    launcher.write_text(text.replace("[ ", saves + "[ "))
    program(tmp_path / "bin/sbatch", "")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    code, output, _ = submit()
    assert code == 1 and output.count(" --resume ") == output.count(" --local\n") == 1, output
    assert main(["runs", "--logs", str(logs)]) == 0
    assert re.search(r"next: .* --resume \S+ --local\n", capsys.readouterr().out)


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
    assert "skipped: completed  ex/submit.txt:1" in output and "skipped: missing  ex/submit.txt:3" in output
    for text in ("FP16=false run", "submit.txt:3  FP16"):  # as it stands in the file, and as it is printed
        assert "1 to run here" in submit("--dry-run", "--match", text)[1]
    code, _, error = submit("--only", "faild")
    assert code == 2 and "--only faild: unknown; known are missing, queued, running" in error


def test_shell_s_settings_make_other_runs(submit, tmp_path: Path, logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


BY_HAND = "run.slurm ds_configs/zero1.json"


@pytest.mark.parametrize(
    ("line", "record", "settings", "skipped"),
    [
        ("run.slurm", {"submission": "run.slurm", "state": "running"}, {}, True),
        ("run.slurm", {"submission": "run.slurm"}, {"train_size": 500}, True),
        ("run.slurm", {"submission": "run.slurm"}, {"train_size": 1000}, False),  # of before an edit of env_vars.sh
        ("run.slurm --train-size 20", {"submission": "run.slurm --train-size 20"}, {"train_size": 20}, True),
        (BY_HAND, {"config": "zero1"}, {"train_size": 500, "fp16": True, "seed": 42}, True),
    ],
)
def test_line_whose_run_has_the_same_settings_is_not_run_again(
    submit, tmp_path: Path, make_run, logs: Path, line: str, record: dict, settings: dict, skipped: bool
) -> None:
    exercise = make_exercise(tmp_path, f"{line}\n")
    (exercise / "exercise.toml").write_text(DECLARED.replace('"..."', '"config", "..."'))
    make_run("r1", {"exercise": "ex", "settings": settings} | record)
    submit()
    assert len(records(logs)) == (1 if skipped else 2)


def test_interrupting_ends_what_runs_and_starts_no_other(tmp_path: Path, logs: Path) -> None:
    exercise = make_exercise(tmp_path, "run.slurm 1\nrun.slurm 2\nrun.slurm 3\n")
    launcher = f"#!/bin/bash\ntrap 'echo told >> {tmp_path}/ended-$1' INT TERM\ntouch {tmp_path}/begun-$1\n"
    saves = f"until [ -f {tmp_path}/ended-$1 ]; do sleep 0.1; done; sleep 1; exit 143\n"
    (exercise / "run.slurm").write_text(launcher + saves)
    command = [sys.executable, "-m", "tools", "submit", str(exercise), "--logs", str(logs), "--local"]
    environment = os.environ | {"PYTHONPATH": str(REPO), "CUDA_VISIBLE_DEVICES": ""}
    options = {"stdout": subprocess.PIPE, "text": True, "start_new_session": True}
    with subprocess.Popen(command, env=environment, **options) as runner:
        wait_until((tmp_path / "begun-1").exists)
        os.killpg(runner.pid, signal.SIGINT)  # as a terminal does, to all that run in it
        output, _ = runner.communicate(timeout=120)
    assert {one.name for one in tmp_path.glob("*-[123]")} == {"begun-1", "ended-1"}
    assert (tmp_path / "ended-1").read_text() == "told\n", "a second signal ends the training before it has saved"
    assert runner.returncode == 130 and "1 cancelled, 2 not started" in output


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("BATCH_SIZE=eight baseline/baseline.slurm", "BATCH_SIZE='eight' ("),
        ("deepspeed-zero3-offload/run.slurm --steps few", "MAX_STEPS='few' ("),
        ("further/by-hand/by_hand.slurm fsdp_configs/full_shard.json", "script 'fsdp_configs/full_shard.json': "),
        ("deepspeed-single-gpu/deepspeed.slurm tests/foreign/configs/d13-fp16-typo.json", "nothing reads 'fp16"),
        ("CP_SIZE=2 further/dimensions/dimensions.slurm tp.py", "CP_SIZE=2: only cp.py reads it"),
        ("MODEL_NAME=bloom-7b MODEL_INIT=random baseline/baseline.slurm", "did you mean bloom-7b1? expected a folder"),
    ],
)
def test_line_that_its_job_would_refuse_is_not_queued(tmp_path: Path, logs: Path, capsys, line: str, told: str) -> None:
    (tmp_path / "runs.txt").write_text(f"{line}\n")
    assert main(["submit", "--list", str(tmp_path / "runs.txt"), "--logs", str(logs), "--local"]) == 2
    error = capsys.readouterr().err
    assert re.match(r"error: \S+/runs\.txt:1 \(\S+\): ", error) and told in error
    assert not [*logs.iterdir()]


def test_K1_mistyped_setting_or_exercise_queues_nothing(submit, tmp_path, logs, monkeypatch, capsys) -> None:
    monkeypatch.setenv("TRAINSIZE", "8")
    make_exercise(tmp_path, "run.slurm\n")
    code, _, error = submit()
    assert code == 2 and "TRAINSIZE=8 (did you mean TRAIN_SIZE?)" in error
    assert main(["submit", "basline", "--local", "--dry-run"]) == 2
    assert "basline: no folder with a submit.txt; those that have one: baseline" in capsys.readouterr().err
    assert records(logs) == []


@pytest.mark.parametrize(
    ("terminal", "answer", "yes", "started"),
    [(True, "n", [], 1), (True, "y", [], 2), (True, None, ["--yes"], 2), (False, None, [], 2)],
)
def test_a_run_that_cannot_fit_is_asked_about_where_somebody_can_answer(
    terminal: bool, answer: str | None, yes: list[str], started: int, tmp_path: Path, monkeypatch, capsys
) -> None:
    """One line out of memory has held a queue's place for nothing."""
    file, words = tmp_path / "runs.txt", "--gpus-per-node=4 fsdp/multi_gpu.slurm fsdp_configs"
    file.write_text(f"BATCH_SIZE=16 GRAD_ACC=1 {words}/ddp.json\n{words}/full_shard.json\n")
    words = ["submit", "--list", str(file), "--gpu", "v100-32gb", *yes]
    arguments = parser().parse_args(words, argparse.Namespace(after_dashes=[]))
    monkeypatch.setattr("sys.stdin", io.StringIO("" if answer is None else f"{answer}\n"))
    monkeypatch.setattr("sys.stdin.isatty", lambda: terminal)
    assert len(submit_command._willing(submissions.read_list(file, {}), arguments)) == started
    large, small, *rest = capsys.readouterr().out.splitlines()
    assert re.match(r"v100-32gb  does not fit: needs [\d,]+ of 32,480 MiB", large)
    assert re.match(r"v100-32gb  fits: needs [\d,]+ of 32,480 MiB", small)
    assert any("cannot fit; not a terminal" in line for line in rest) == (not terminal)


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
        "memory_mib": "409600",
    }
    record = {"exercise": "fsdp", "state": "failed", "gpus_per_node": 2, "cpu_threads": 1, "submission": launcher.name}
    return make_run("20261122-100000-p1", record, **{".resume.json": json.dumps(started)})


def test_resumed_run_has_as_many_threads_and_as_much_memory_as_it_was_started_with(stopped: Path, logs: Path) -> None:
    _, options, environment = started_again(stopped, logs, {"OMP_NUM_THREADS": "16"})
    assert (environment["OMP_NUM_THREADS"], options[-1]) == ("1", "--mem=409600M")


def test_run_whose_job_slurm_has_queued_again_is_not_started_twice(stopped: Path, logs, capsys, monkeypatch) -> None:
    record = json.loads((stopped / "run.json").read_text()) | {"state": "timeout", "slurm_job_id": "7"}
    (stopped / "run.json").write_text(json.dumps(record))
    program(logs / "bin/scontrol", "echo JobState=COMPLETING Requeue=1 Restarts=1; echo JobState=PENDING")
    monkeypatch.setenv("PATH", f"{logs}/bin:{os.environ['PATH']}")
    with pytest.raises(InputError, match="queued job 7 again"):
        started_again(stopped, logs, {})
    assert main(["summary", str(stopped)]) == 0 and "next: squeue --jobs=7 " in capsys.readouterr().out


@pytest.mark.parametrize("theirs", [".", ".resume.json", "../../.code/1f3a", "../../.code/1f3a/fsdp/multi_gpu.slurm"])
def test_somebody_elses_run_is_not_started(theirs, stopped, make_run, logs, monkeypatch, capsys) -> None:
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
        ({"command": []}, "expected a run of this version"),
        ({"settings": {"BASH_ENV": "env"}}, r"\.resume\.json sets BASH_ENV; expected settings"),
        ({"settings": {"TRAIN_SIZE": 64}}, "expected a run of this version"),
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


def test_progress_of_a_run_is_no_warning_of_a_library(tmp_path: Path) -> None:
    printed = tmp_path / "launcher.out"
    printed.write_text("compiling cpu_adam\n[2026-11-30 08:54:50,279] [WARNING] [real.py:213] Setting accelerator\n")
    assert local_runs._lines(printed)[-1] == "compiling cpu_adam"
