"""What is submitted is what runs: on a real SLURM, with a copy of this repository that may be edited."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from test_baseline import until
from throwaway_slurm import ThrowawaySlurm

from tests.leftovers import leftovers

REPO = Path(__file__).parents[2]
# Stands in for the training: what matters here is which version of it runs, and what it is given. One text, so one
# write: the loggers write into the same file.
TRAIN = 'import os\nprint("train.py is {version}; data: " + os.environ["DATASET"])\n'


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), "-c", "user.name=t", "-c", "user.email=t@example.org", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """This working tree as a repository of its own with one commit."""
    copy = tmp_path / "repo"
    for name in git(REPO, "ls-files", "--cached", "--others", "--exclude-standard").splitlines():
        if (REPO / name).exists() and not name.startswith("logs/reference"):
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPO / name, copy / name, follow_symlinks=False)
    (copy / "baseline/train.py").write_text(TRAIN.format(version="committed"))
    git(copy, "init", "--quiet")
    git(copy, "add", ".")
    git(copy, "commit", "--quiet", "--message=copy")
    return copy


@pytest.fixture
def participant(tmp_path: Path) -> Path:
    """The folder in which the participant stands, with data of their own in it."""
    folder = tmp_path / "participant"
    folder.mkdir()
    (folder / "mine.json").write_text("{}")
    return folder


def environment(slurm: ThrowawaySlurm, copy: Path) -> dict[str, str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{slurm.env['PATH']}"
    return slurm.env | {"PATH": path, "PYTHONPATH": str(copy), "LOG_DIR": "my_logs", "DATASET": "mine.json"}


def submit(slurm: ThrowawaySlurm, copy: Path, participant: Path, *options: str) -> str:
    """What `python -m tools submit baseline` prints."""
    command = [sys.executable, "-m", "tools", "submit", "baseline", *options]
    answer = subprocess.run(
        command, cwd=participant, env=environment(slurm, copy), stdout=subprocess.PIPE, text=True, check=True
    )
    return answer.stdout


def job_of(printed: str) -> int:
    return int(next(line for line in printed.splitlines() if line.startswith("job ")).split()[1])


def only_record(participant: Path) -> tuple[Path, dict[str, Any]]:
    (run,) = (participant / "my_logs/baseline").iterdir()
    return run, json.loads((run / "run.json").read_text())


def test_editing_train_py_while_queued_does_not_change_what_runs(
    slurm: ThrowawaySlurm, copy: Path, participant: Path
) -> None:
    train = copy / "baseline/train.py"
    train.write_text(TRAIN.format(version="submitted"))
    (copy / "cluster.env").write_text("export SBATCH_TIMELIMIT=7\n")
    job = job_of(submit(slurm, copy, participant, "--", "--hold", "--mem=1G"))
    assert slurm.show(job)["TimeLimit"] == "00:07:00", "cluster.env has not reached sbatch"

    train.write_text(TRAIN.format(version="edited"))
    (copy / "baseline/env_vars.sh").write_text("exit 1\n")
    (copy / "workshop/job/run_record.py").write_text("raise SystemExit('edited')\n")
    assert "nothing to do" in submit(slurm, copy, participant, "--again"), "a queued run was queued again"
    slurm.run("scontrol", "release", str(job))

    assert slurm.wait(job) == "COMPLETED", slurm.job_output(job)
    run, record = only_record(participant)
    assert f"train.py is submitted; data: {participant}/mine.json" in (run / "train.out").read_text()
    assert record["state"] == "completed"
    assert record["submission"] == "DATASET=mine.json baseline.slurm" and record["launcher"] == "baseline.slurm"
    assert record["git_commit"] == git(copy, "rev-parse", "HEAD").strip()
    assert record["git_dirty"] is True
    assert '+print("train.py is submitted' in record["git_diff"]
    assert (run / "code.diff").read_text() == record["git_diff"]
    assert "edited" not in record["git_diff"]
    assert "warning: changed since submission" not in slurm.job_output(job)
    until(lambda: leftovers(run, slurm.shm) == [], 60, "end of what it leaves")

    git(copy, "checkout", "baseline/env_vars.sh")
    assert "skipped: completed" in submit(slurm, copy, participant)


def test_an_edited_configuration_is_not_picked_up_from_where_the_participant_stands(
    slurm: ThrowawaySlurm, copy: Path, participant: Path
) -> None:
    """A relative configuration is looked up in the folder of the submission first: not by a snapshot."""
    exercise = copy / "baseline"
    launcher = exercise / "baseline.slurm"
    launcher.write_text(launcher.read_text().replace("start_run ", 'start_run "$1" ', 1))
    (exercise / "ds_configs").mkdir()
    (exercise / "ds_configs/zero1.json").write_text("{}")
    (exercise / "submit.txt").write_text("baseline.slurm ds_configs/zero1.json\n")
    (exercise / "train.py").write_text('import os\nprint("read", open(os.environ["CONFIG"]).read())\n')
    (participant / "ds_configs").mkdir()
    (participant / "ds_configs/zero1.json").write_text('{"edited": true}')
    job = job_of(submit(slurm, copy, participant, "--", "--mem=1G"))
    assert slurm.wait(job) == "COMPLETED", slurm.job_output(job)
    run, record = only_record(participant)
    assert record["config"] == "zero1"
    assert "read {}" in (run / "train.out").read_text()


def test_plain_sbatch_warns_of_code_that_changed_while_queued(slurm: ThrowawaySlurm, copy: Path) -> None:
    shell = environment(slurm, copy)
    script = copy / "baseline/baseline.slurm"
    edited = slurm.submit(script, cwd=copy, options=["--hold", "--mem=1G"], env=shell)
    time.sleep(2.1)  # SLURM's times have no fractions
    (copy / "baseline/train.py").write_text(TRAIN.format(version="edited"))
    untouched = slurm.submit(script, cwd=copy, options=["--mem=1G", "--dependency=afterany:" + str(edited)], env=shell)
    slurm.run("scontrol", "release", str(edited))
    assert slurm.wait(edited) == "COMPLETED", slurm.job_output(edited)
    assert "warning: changed since submission: train.py (this run uses" in slurm.job_output(edited)
    assert slurm.wait(untouched) == "COMPLETED", slurm.job_output(untouched)
    assert "changed since submission" not in slurm.job_output(untouched)


def test_a_refused_job_does_not_stop_the_rest(slurm: ThrowawaySlurm, copy: Path, participant: Path) -> None:
    (copy / "baseline/submit.txt").write_text("--gpus-per-node=3 baseline.slurm\n--mem=1G baseline.slurm\n")
    command = [sys.executable, "-m", "tools", "submit", "baseline"]
    answer = subprocess.run(command, cwd=participant, env=environment(slurm, copy), capture_output=True, text=True)
    assert answer.returncode == 1
    assert "error: baseline/submit.txt:1: sbatch: error: " in answer.stderr
    assert "1 queued, 1 refused by sbatch" in answer.stdout
    assert "python -m tools fill baseline --logs" in answer.stdout
    assert slurm.wait(job_of(answer.stdout)) == "COMPLETED"


def test_rehearsal_queues_its_jobs_waits_for_them_and_reports(
    slurm: ThrowawaySlurm, copy: Path, tmp_path: Path, participant: Path
) -> None:
    shell = environment(slurm, copy) | {"LOG_DIR": str(tmp_path / "logs")}
    command = [sys.executable, "-m", "tools", "rehearse", "baseline", "--", "--mem=1G"]
    answer = subprocess.run(command, cwd=participant, env=shell, capture_output=True, text=True)
    assert answer.returncode == 1, "the stand-in has no steps to plot"
    assert "1 run of 1 exercise, on SLURM" in answer.stdout and "1 of 1 job ended" in answer.stdout
    (record,) = (tmp_path / "logs/rehearsal").glob("*/baseline/*/run.json")
    assert json.loads(record.read_text())["slurm_job_id"]
    assert "baseline  1 completed" in answer.stdout
