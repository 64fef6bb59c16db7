"""What a cluster does to a job: it goes on by itself, or is recorded as what it was, and nothing is left behind."""

import csv
import os
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_baseline import record, until
from throwaway_slurm import ThrowawaySlurm

from tests.launching import REPO, tiny_profile
from tests.leftovers import is_rank, leftovers
from workshop.job.control import Control
from workshop.job.outcome import NOT_BEGUN

SHORT = {
    **{"TRAIN_SIZE": "64", "EVAL_SIZE": "4", "MAX_LENGTH": "64", "BATCH_SIZE": "2", "GRAD_ACC": "1"},
    **{"MAX_STEPS": "40", "SAVE_STEPS": "10", "FAULT_STEP": "25", "OMP_NUM_THREADS": "1"},
}


@pytest.fixture(scope="module")
def cluster(slurm_installed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThrowawaySlurm]:
    """Two nodes, one of which loses its power."""
    with ThrowawaySlurm(tmp_path_factory.mktemp("faults"), nodes=2, gpus_per_node=1, cpus=4) as started:
        yield started


def submit(cluster: ThrowawaySlurm, folder: Path, fault: str, *options: str, **settings: str) -> int:
    environment = tiny_profile() | SHORT | {"LOG_DIR": str(folder), "FAULT": fault} | settings
    options = (f"--output={folder}/job.out", "--gpus-per-node=1", "--mem=2G", "--cpus-per-task=1", *options)
    return cluster.submit("resilience/drill.slurm", cwd=REPO, options=options, env=environment)


def start(cluster: ThrowawaySlurm, folder: Path, fault: str, *options: str, **settings: str) -> tuple[int, Path]:
    """A drill, waited for until it waits for its fault after 25 steps and two checkpoints; its run folder."""
    job = submit(cluster, folder, fault, *options, **settings)
    until(
        lambda: any(
            "\n26," in path.read_text() or f"={fault}" in (path.parent / "train.out").read_text()
            for path in folder.glob("*/*/steps.csv")
        ),
        120,
        "fault",
    )
    (run,) = (folder / "resilience").iterdir()
    return job, run


def losses(run: Path) -> list[float]:
    with (run / "steps.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert [int(line["step"]) for line in lines] == list(range(1, len(lines) + 1)), "a gap, or a step twice"
    return [float(line["loss"]) for line in lines]


@pytest.fixture(scope="module")
def undisturbed(cluster: ThrowawaySlurm, tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    """Losses of a job whose port (it follows from the job's id) is taken by somebody who does not answer."""
    folder = tmp_path_factory.mktemp("undisturbed")
    job = submit(cluster, folder, "none", "--hold")
    with socket.create_server(("", 20000 + job % 12000)):
        cluster.run("scontrol", "release", str(job))
        assert cluster.wait(job) == "COMPLETED", cluster.job_output(job)
    (run,) = (folder / "resilience").iterdir()
    assert_nothing_is_left(cluster, run)
    return losses(run)


def assert_came_back(
    cluster: ThrowawaySlurm, job: int, run: Path, undisturbed: list[float], state: str, reason: str
) -> dict:
    assert cluster.wait(job, timeout_s=240) == "COMPLETED", cluster.job_output(job)
    assert losses(run) == pytest.approx(undisturbed, abs=1e-5)
    assert [folder.name for folder in run.parent.iterdir()] == [run.name], "a second run folder"
    (attempt,) = record(run)["attempts"]
    assert (attempt["state"], record(run)["state"]) == (state, "completed")
    assert reason in attempt["reason"]
    assert "the run goes on from" in cluster.job_output(job), "the output of the attempt before is lost"
    assert_nothing_is_left(cluster, run)
    return attempt


def assert_nothing_is_left(cluster: ThrowawaySlurm, run: Path) -> None:
    until(lambda: leftovers(run, cluster.shm) == [], 60, f"end of {leftovers(run, cluster.shm)}")


def test_time_limit_is_noticed_before_and_the_job_queues_itself_again(
    cluster: ThrowawaySlurm, undisturbed: list[float], tmp_path: Path
) -> None:
    job, run = start(cluster, tmp_path, "time_limit")
    cluster.cancel(job, "--signal=USR1", "--batch")  # as `#SBATCH --signal=B:USR1@120` does, at a time of its own
    attempt = assert_came_back(cluster, job, run, undisturbed, "timeout", "SIGUSR1: checkpoint-")
    assert attempt["steps_lost"] == 0


def test_preempted_job_saves_before_it_is_killed_and_slurm_starts_it_again(
    cluster: ThrowawaySlurm, undisturbed: list[float], tmp_path: Path
) -> None:
    job, run = start(cluster, tmp_path, "time_limit", "--nodelist=" + cluster.nodes[0])
    urgent = tmp_path / "urgent.slurm"
    urgent.write_text("#!/bin/bash\nsleep 2\n")
    options = ["--partition=urgent", "--nodelist=" + cluster.nodes[0], "--exclusive", "--mem=1G"]
    cluster.submit(urgent, cwd=tmp_path, options=options)
    attempt = assert_came_back(cluster, job, run, undisturbed, "preempted", "SIGTERM: checkpoint-")
    assert attempt["steps_lost"] == 0


def test_cancelled_job_has_saved_and_does_not_come_back(cluster: ThrowawaySlurm, tmp_path: Path) -> None:
    job, run = start(cluster, tmp_path, "cancelled")
    cluster.cancel(job)
    assert cluster.wait(job, timeout_s=180) == "CANCELLED"
    assert_nothing_is_left(cluster, run)
    assert record(run)["state"] == "cancelled"
    assert (run / f"bloom-qa-finetuned/checkpoint-{len(losses(run))}/manifest.json").exists(), record(run)["reason"]


def test_job_whose_node_loses_its_power_goes_on_on_another(
    cluster: ThrowawaySlurm, undisturbed: list[float], tmp_path: Path
) -> None:
    if not cluster.isolated_nodes:
        pytest.skip("needs nodes with processes of their own (root with CAP_SYS_ADMIN)")
    job, run = start(cluster, tmp_path, "node_off")
    cluster.power_off(cluster.show(job)["NodeList"])
    attempt = assert_came_back(cluster, job, run, undisturbed, "failed", "nothing says how this attempt ended")
    assert (attempt["resumed_step"], attempt["steps_lost"]) == (20, 5)


def held_back(folder: Path) -> dict[str, str]:
    """Settings with which a training does not begin before there is a file `begin` in the folder."""
    programs = folder / "venv/bin"
    programs.mkdir(parents=True)
    real = Path(sys.executable)
    torchrun = f'until [ -e {folder}/begin ]; do sleep 0.2; done; exec {real.with_name("torchrun")} "$@"'
    for name, line in {"python": f'exec {real} "$@"', "torchrun": torchrun}.items():
        (programs / name).write_text(f"#!/bin/bash\n{line}\n")
        (programs / name).chmod(0o755)
    return {"WORKSHOP_VENV": str(programs.parent)}


def test_notice_of_the_end_before_the_first_step_queues_the_job_again(
    cluster: ThrowawaySlurm, undisturbed: list[float], tmp_path: Path
) -> None:
    job = submit(cluster, tmp_path, "none", **held_back(tmp_path))
    until(lambda: [*tmp_path.glob("resilience/*/.control")], 120, "run folder")
    cluster.cancel(job, "--signal=USR1", "--batch")
    until(lambda: "queued again" in cluster.job_output(job), 120, "end of the launcher")
    (tmp_path / "begin").touch()
    (run,) = (tmp_path / "resilience").iterdir()
    attempt = assert_came_back(cluster, job, run, undisturbed, "timeout", NOT_BEGUN)
    assert (attempt["last_step"], attempt["steps_lost"]) == (0, 0)


def test_rank_that_is_killed_while_it_saves_before_the_time_limit_is_the_cause_and_the_job_queues_itself_again(
    cluster: ThrowawaySlurm, undisturbed: list[float], tmp_path: Path
) -> None:
    job, run = start(cluster, tmp_path, "time_limit")
    (rank,) = [pid for pid in cluster.processes() if is_rank(pid, run)]
    os.kill(rank, signal.SIGSTOP)
    cluster.cancel(job, "--signal=USR1", "--batch")
    until(lambda: Control(run).told, 60, "stop")
    os.kill(rank, signal.SIGKILL)
    attempt = assert_came_back(cluster, job, run, undisturbed, "failed", "a rank was killed (SIGKILL)")
    assert (attempt["resumed_step"], attempt["steps_lost"]) == (20, 5)


def test_training_that_hangs_is_ended_and_goes_on_in_the_same_job(
    cluster: ThrowawaySlurm, undisturbed: list[float], tmp_path: Path
) -> None:
    """It waits for a fault that nobody brings, for longer than HANG_TIMEOUT_S."""
    job, run = start(cluster, tmp_path, "time_limit", HANG_TIMEOUT_S="5")
    attempt = assert_came_back(
        cluster, job, run, undisturbed, "failed", "hang: rank 0, no progress for 5 s after step 25"
    )
    assert (attempt["cause"], attempt["resumed_step"], attempt["steps_lost"]) == ("hang", 20, 5)
    assert "in on_step_begin" in (run / "stacks-1/rank-0.txt").read_text(), "no stack says where it hung"
