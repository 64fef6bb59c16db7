"""What a cluster does to a job: it goes on by itself, or is recorded as what it was, and nothing is left behind.

The jobs are submitted together, each waits for its own fault.
"""

import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from submitting import Job, stand_in, submit
from throwaway_slurm import ThrowawaySlurm

from tests.launching import losses, program, wait_until
from tests.leftovers import processes_of
from workshop.job.outcome import NOT_BEGUN

pytestmark = pytest.mark.long

DRILL = {"MAX_STEPS": "40", "SAVE": "steps", "SAVE_STEPS": "10", "FAULT_STEP": "25"}
WAITS = "waits for you to do it"


@pytest.fixture(scope="module")
def jobs(slurm_installed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Job]]:
    """Jobs to each of which its fault has come, and which are on their way to their end."""
    folder = tmp_path_factory.mktemp("drills")
    torchrun = Path(sys.executable).with_name("torchrun")
    waits = f'until [ -e {folder}/begin ]; do sleep 0.2; done; exec {torchrun} "$@"'
    held_back = stand_in(folder, "torchrun", waits)
    # Saves nothing, and leaves the processors to the others.
    lines = f"echo saves nothing >> $RUN_DIR/.control; echo {WAITS}; exec sleep 1000"
    sleeps = stand_in(folder / "sleeps", "torchrun", lines)
    # With one GPU each, every job has a node for itself.
    with ThrowawaySlurm(tmp_path_factory.mktemp("faults"), nodes=7, gpus_per_node=1) as cluster:

        def started(name: str, fault: str = "time_limit", options: str = "", **settings: str) -> Job:
            settings = DRILL | {"FAULT": fault} | settings
            options = f"--gpus-per-node=1 {options}"
            return submit(cluster, folder / name, "further/resilience/drill.slurm", options=options, **settings)

        jobs = {name: started(name) for name in ("notice", "preempted")}
        jobs |= {
            "limit": submit(cluster, folder / "limit", "fsdp/single_gpu.slurm", **sleeps),
            "late": started("late", "none", "--hold", **held_back),
            # SLURM's SIGTERM reaches every process of a step: torchrun, ranks, W&B's process.
            "cancelled": started("cancelled", "cancelled", "--nodes=2", REPORT_TO="wandb"),
            "node": started("node", "node_off"),
        }
        # Its port, which follows from its id, is taken by somebody who does not answer.
        with socket.create_server(("", 20000 + jobs["late"].id % 12000)):
            cluster.run("scontrol", "release", str(jobs["late"].id))
            jobs["late"].wait_for(".control", "starting")
            send_notice(jobs["late"])
            wait_until(lambda: "queued again" in jobs["late"].output)
            (folder / "begin").touch()
        jobs["limit"].wait_for("train.out", WAITS)
        # A time that is past when it arrives is refused. TIMEOUT follows within 35 s.
        cluster.run("scontrol", "update", f"JobId={jobs['limit'].id}", "EndTime=now+5")
        for name in ("notice", "preempted", "cancelled", "node"):
            jobs[name].wait_for("train.out", WAITS)
        cluster.power_off(cluster.show(jobs["node"].id)["NodeList"])
        send_notice(jobs["notice"])
        loggers = " ".join(processes_of(jobs["cancelled"].run))
        assert "psrecord" in loggers and "memory_logger" in loggers
        cluster.cancel(jobs["cancelled"].id)
        program(folder / "urgent.slurm", "sleep 2")
        node = cluster.show(jobs["preempted"].id)["NodeList"]
        options = ["--partition=urgent", f"--nodelist={node}", "--exclusive", "--mem=1G"]
        cluster.submit(folder / "urgent.slurm", cwd=folder, options=options)
        yield jobs


def send_notice(job: Job) -> None:
    """As `#SBATCH --signal=B:USR1@120` does, at a time of its own."""
    job.cluster.cancel(job.id, "--signal=USR1", "--batch")


@pytest.mark.parametrize(
    ("name", "state", "reason", "resumed_step", "lost"),
    [
        ("late", "timeout", NOT_BEGUN, 0, 0),  # the notice came before the first step
        ("notice", "timeout", "SIGUSR1: checkpoint-", 26, 0),
        ("preempted", "preempted", "SIGTERM: checkpoint-", 26, 0),
        ("node", "failed", "nothing says how this attempt ended", 20, 5),
    ],
)
def test_job_comes_back_by_itself_and_trains_as_if_nothing_had_been(jobs, name, state, reason, resumed_step, lost):
    """The run of one attempt that ended early has the losses of one that nothing happened to once it had begun."""
    job, undisturbed = jobs[name], jobs["late"]
    found = job.record()
    undisturbed.record()
    assert losses(job.run) == pytest.approx(losses(undisturbed.run), abs=1e-5)
    assert [folder.name for folder in job.run.parent.iterdir()] == [job.run.name], "a second run folder"
    (attempt,) = found["attempts"]
    assert (attempt["state"], found["state"]) == (state, "completed")
    assert reason in attempt["reason"]
    assert (attempt["resumed_step"], attempt["steps_lost"]) == (resumed_step, lost)
    assert "the run goes on from" in job.output, "the output of the attempt before is lost"


def test_time_limit_of_a_training_that_saves_nothing_is_recorded_as_timeout(jobs: dict[str, Job]) -> None:
    assert jobs["limit"].record("TIMEOUT")["state"] == "timeout"


def test_K11_cancelled_job_saves_does_not_come_back_and_leaves_no_logger(jobs: dict[str, Job]) -> None:
    job = jobs["cancelled"]
    found = job.record("CANCELLED")
    assert found["state"] == "cancelled"
    checkpoint = job.run / f"bloom-qa-finetuned/checkpoint-{len(losses(job.run))}"
    assert (checkpoint / "manifest.json").exists(), found["reason"]
