"""The test cluster itself: what the workshop's SLURM tests rely on."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from throwaway_slurm import CGROUP_V1, SlurmError, ThrowawaySlurm

from tests.launching import REPO

Script = Callable[..., Path]


@pytest.fixture
def script(tmp_path: Path) -> Script:
    """Write a batch script with the given commands into the test's folder."""

    def write(*commands: str) -> Path:
        path = tmp_path / "job.slurm"
        path.write_text("\n".join(["#!/bin/bash", *commands, ""]))
        return path

    return write


def test_two_node_job_runs_on_both_nodes(slurm: ThrowawaySlurm, script: Script, tmp_path: Path) -> None:
    job = slurm.submit(
        script('srun bash -c \'echo "$SLURM_NODEID $(hostname) $SLURMD_NODENAME $GREETING $1"\' _ "$1"'),
        "argument",
        cwd=tmp_path,
        options=["--nodes=2", "--ntasks-per-node=1"],
        env={"GREETING": "hello"},
    )
    assert slurm.wait(job) == "COMPLETED", slurm.job_output(job)
    first, second = sorted(slurm.job_output(job).splitlines())
    hosts = slurm.nodes if slurm.isolated_nodes else [slurm.nodes[0]] * 2
    assert first == f"0 {hosts[0]} {slurm.nodes[0]} hello argument"
    assert second == f"1 {hosts[1]} {slurm.nodes[1]} hello argument"
    assert (tmp_path / f"slurm-{job}.out").is_file()


def test_job_sees_the_gpus_it_asked_for(slurm: ThrowawaySlurm, script: Script, tmp_path: Path) -> None:
    job = slurm.submit(
        script('echo "$SLURM_GPUS_ON_NODE $CUDA_VISIBLE_DEVICES"'), cwd=tmp_path, options=["--gpus-per-node=2"]
    )
    assert slurm.wait(job) == "COMPLETED"
    assert slurm.job_output(job) == "2 0,1\n"
    with pytest.raises(SlurmError, match="not available"):
        slurm.submit(script("true"), cwd=tmp_path, options=["--gpus-per-node=3"])


def test_failed_job_is_failed(slurm: ThrowawaySlurm, script: Script, tmp_path: Path) -> None:
    options = ["--output=out/%x-%j.out", "--error=%j.err"]
    (tmp_path / "out").mkdir()
    job = slurm.submit(script("echo out; echo err >&2; exit 3"), cwd=tmp_path, options=options)
    assert slurm.wait(job) == "FAILED"
    assert slurm.show(job)["ExitCode"] == "3:0"
    assert slurm.job_output(job) == "out\nerr\n"


def test_cancelled_and_expired_jobs(slurm: ThrowawaySlurm, script: Script, tmp_path: Path) -> None:
    """Both states in one test, so that one cluster-wide 30 s tick serves both."""
    expired = slurm.submit(script("sleep 1000"), cwd=tmp_path)
    slurm.wait_running(expired)
    slurm.expire(expired)
    cancelled = slurm.submit(script("sleep 1000"), cwd=tmp_path)
    slurm.wait_running(cancelled)
    slurm.cancel(cancelled)
    assert slurm.wait(cancelled, timeout_s=120) == "CANCELLED"
    with pytest.raises(TimeoutError, match="after 0 s"):
        slurm.wait(slurm.submit(script("sleep 1"), cwd=tmp_path), timeout_s=0)
    assert slurm.wait(expired, timeout_s=180) == "TIMEOUT"


@pytest.mark.parametrize(
    ("launcher", "state"),
    # A step that runs out of memory only fails its srun; what becomes of the job is the batch script's decision.
    [("", "OUT_OF_MEMORY"), ("srun ", "FAILED")],
    ids=["batch", "step"],
)
def test_job_over_its_memory_is_killed(
    slurm: ThrowawaySlurm, script: Script, tmp_path: Path, launcher: str, state: str
) -> None:
    if not slurm.memory_enforced:
        pytest.skip("this machine does not let SLURM limit memory (needs a writable cgroup v1 memory hierarchy)")
    allocate = f"{launcher}{sys.executable} -c 'print(len(bytearray(400 << 20)))'"
    over = slurm.submit(script(allocate), cwd=tmp_path, options=["--mem=100"])
    assert slurm.wait(over) == state, slurm.job_output(over)
    assert "oom-kill" in slurm.job_output(over)
    within = slurm.submit(script(allocate), cwd=tmp_path, options=["--mem=600"])
    assert slurm.wait(within) == "COMPLETED", slurm.job_output(within)


def test_two_clusters_at_once_and_nothing_is_left_after_stop(
    slurm: ThrowawaySlurm, script: Script, tmp_path: Path, cluster_folder: Path
) -> None:
    with ThrowawaySlurm(cluster_folder, nodes=1) as second:
        # The sleep ignores SIGTERM and runs in its own session, as a stubborn training might.
        job = second.submit(script("trap '' TERM; setsid sleep 1000 & echo started; wait"), cwd=tmp_path)
        second.wait_running(job)
        assert slurm.wait(slurm.submit(script("true"), cwd=tmp_path)) == "COMPLETED"
        assert len(second.processes()) >= 3
    assert second.processes() == []
    assert slurm.processes() != []
    second.stop()  # a second stop does nothing


def test_cgroups_are_removed(slurm_installed: None, tmp_path: Path, cluster_folder: Path) -> None:
    with ThrowawaySlurm(cluster_folder, nodes=3) as cluster:  # no other cluster here has a third node
        job = tmp_path / "job.slurm"
        job.write_text("#!/bin/bash\nsrun true\n")
        assert (
            cluster.wait(cluster.submit(job, cwd=tmp_path, options=["--nodelist=" + cluster.nodes[2]])) == "COMPLETED"
        )
        left = list(CGROUP_V1.glob(f"*/slurm_{cluster.nodes[2]}"))
        assert bool(left) == cluster.memory_enforced
    assert not any(path.exists() for path in left)


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL], ids=lambda end: end.name)
def test_interrupted_test_process_leaves_no_cluster(
    slurm_installed: None, script: Script, cluster_folder: Path, end: signal.Signals
) -> None:
    cluster = ThrowawaySlurm(cluster_folder, nodes=1)  # only to look for the processes of the child's cluster
    if end == signal.SIGKILL and not cluster.isolated_nodes:
        pytest.skip("the kernel ends jobs with their node only where nodes have their own process ids")
    code = """if True:
        import sys, time
        from pathlib import Path
        from throwaway_slurm import ThrowawaySlurm
        cluster = ThrowawaySlurm(Path(sys.argv[1]), nodes=1)
        cluster.start()
        cluster.wait_running(cluster.submit(sys.argv[2], cwd=Path(sys.argv[1])))
        print("running", flush=True)
        time.sleep(1000)
    """
    command = [sys.executable, "-c", code, str(cluster_folder), str(script("sleep 1000"))]
    path = {"PYTHONPATH": f"{REPO}:{Path(__file__).parent}"}
    with subprocess.Popen(command, env=os.environ | path, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "running\n"
        assert cluster.processes() != []
        child.send_signal(end)
    deadline = time.monotonic() + 60  # SIGKILL: the kernel takes a moment
    while cluster.processes() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert cluster.processes() == []
