"""The drill's launcher without SLURM: what dies begins again in the same job, what was told to end is resumed."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.launching import REPO, losses, record, tiny_profile, wait_until
from tests.leftovers import is_rank, leftovers, with_own_shm
from workshop.job.control import Control

SHORT = {
    **{"TRAIN_SIZE": "64", "EVAL_SIZE": "4", "MAX_LENGTH": "64", "BATCH_SIZE": "2", "GRAD_ACC": "1"},
    **{"MAX_STEPS": "40", "SAVE_STEPS": "10", "FAULT_STEP": "25", "OMP_NUM_THREADS": "1"},
}


def drill(folder: Path, fault: str) -> tuple[subprocess.CompletedProcess[str], Path]:
    environment = tiny_profile() | SHORT | {"LOG_DIR": str(folder), "FAULT": fault}
    command = [*with_own_shm(folder / "shm"), "bash", "resilience/drill.slurm"]
    job = subprocess.run(command, cwd=REPO, env=environment, capture_output=True, text=True, timeout=300)
    (run,) = (folder / "resilience").iterdir()
    assert leftovers(run, folder / "shm") == []
    return job, run


@pytest.fixture(scope="module")
def without_loggers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its loggers are killed, which the training does not notice."""
    job, run = drill(tmp_path_factory.mktemp("logger"), "logger_killed")
    assert job.returncode == 0, job.stdout[-3000:] + job.stderr[-2000:]
    return run


def test_killed_loggers_cost_the_rest_of_their_logs_only(without_loggers: Path) -> None:
    assert (record(without_loggers)["state"], record(without_loggers).get("attempts")) == ("completed", None)
    assert len(losses(without_loggers)) == 40
    assert (without_loggers / "cpu_memory.txt").read_text().startswith("#")


def test_killed_rank_is_started_again_in_the_same_job_and_folder(without_loggers: Path, tmp_path: Path) -> None:
    job, run = drill(tmp_path, "rank_killed")
    assert job.returncode == 0, job.stdout[-3000:] + job.stderr[-2000:]
    (attempt,) = record(run)["attempts"]
    assert (attempt["state"], attempt["resumed_step"], attempt["steps_lost"]) == ("failed", 20, 5)
    assert "a rank was killed (SIGKILL)" in attempt["reason"]
    assert losses(run) == pytest.approx(losses(without_loggers), abs=1e-5)
    assert (run / "cpu_memory.txt").read_text().count("#") == 2, "the first attempt's log is gone"


def test_told_to_end_it_saves_once_and_submit_resumes_it(without_loggers: Path, tmp_path: Path) -> None:
    job, run = drill(tmp_path, "preemption")
    assert job.returncode == 143
    step = int((run / "steps.csv").read_text().splitlines()[-1].split(",")[0])
    assert (record(run)["state"], record(run)["reason"]) == (
        "preempted",
        f"SIGTERM: checkpoint-{step} was saved, then the training ended",
    )
    command = [sys.executable, "-m", "tools", "submit", "--local", "--logs", str(tmp_path), "--resume", run.name]
    again = subprocess.run(
        command, cwd=REPO, env=tiny_profile() | {"FAULT": "preemption"}, capture_output=True, text=True
    )
    assert again.returncode == 0, again.stdout[-3000:] + again.stderr[-2000:]
    assert [one["steps_lost"] for one in record(run)["attempts"]] == [0]
    assert losses(run) == pytest.approx(losses(without_loggers), abs=1e-5)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Of 16 MiB: room for the checkpoints until somebody fills it."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "none", disk], capture_output=True).returncode:
        pytest.skip("only root can make a small disk")
    yield disk
    subprocess.run(["umount", disk], check=True)


def waiting_drill(folder: Path, output: Path | str) -> tuple[subprocess.Popen[str], Path]:
    """A launcher whose training waits after step 25 until it is told to end, and its run folder."""
    environment = tiny_profile() | SHORT | {"LOG_DIR": str(folder), "FAULT": "time_limit", "OUTPUT_DIR": str(output)}
    command = [*with_own_shm(folder / "shm"), "bash", "resilience/drill.slurm"]
    launcher = subprocess.Popen(command, cwd=REPO, env=environment, stdout=subprocess.PIPE, text=True)
    waits = "waits for you to do it"
    wait_until(lambda: any(waits in path.read_text() for path in folder.glob("resilience/*/train.out")))
    (run,) = (folder / "resilience").iterdir()
    return launcher, run


def assert_failed(launcher: subprocess.Popen[str], run: Path, folder: Path, cause: str, reason: str) -> None:
    shown, _ = launcher.communicate(timeout=120)
    assert launcher.returncode == 1, shown[-3000:]
    found = record(run)
    assert (found["state"], found["cause"], found.get("attempts")) == ("failed", cause, None)
    assert reason in found["reason"]
    assert leftovers(run, folder / "shm") == []


@pytest.mark.parametrize("told_by", ["USR1", "TERM"])
def test_disk_that_is_full_when_it_saves_because_it_was_told_to_end_is_the_cause(
    tmp_path: Path, small_disk: Path, told_by: str
) -> None:
    """It was recorded as a notice before the training had begun, or as a preemption."""
    launcher, run = waiting_drill(tmp_path, small_disk / "out")
    with (small_disk / "ballast").open("wb", buffering=0) as ballast:
        while ballast.write(bytes(1 << 16)) == 1 << 16:
            pass
    launcher.send_signal(getattr(signal, f"SIG{told_by}"))
    assert_failed(launcher, run, tmp_path, "disk full", "")
    assert sorted(path.name for path in (small_disk / "out").iterdir()) == ["checkpoint-10", "checkpoint-20"]


def test_rank_that_is_killed_before_it_could_save_as_it_was_told_is_the_reason(tmp_path: Path) -> None:
    launcher, run = waiting_drill(tmp_path, "bloom-qa-finetuned")
    (rank,) = [pid for pid in psutil.pids() if is_rank(pid, run)]
    os.kill(rank, signal.SIGSTOP)
    launcher.send_signal(signal.SIGTERM)
    wait_until(lambda: Control(run).told)
    os.kill(rank, signal.SIGKILL)
    assert_failed(launcher, run, tmp_path, "", "a rank was killed (SIGKILL)")
