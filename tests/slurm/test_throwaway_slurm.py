"""The test cluster itself: whatever becomes of it and of the tests, it leaves nothing on the machine."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from throwaway_slurm import CGROUP_V1, ThrowawaySlurm

from tests.launching import REPO, wait_until


@pytest.fixture
def cluster(slurm_installed: None, tmp_path_factory: pytest.TempPathFactory) -> ThrowawaySlurm:
    """Not yet started. slurmd's sockets lie in its folder, whose paths the kernel limits to 107 characters: a test's
    own folder takes too many of them when tests run side by side.
    """
    return ThrowawaySlurm(tmp_path_factory.mktemp("cluster"), nodes=5)  # no other cluster here has a fifth node


def test_two_clusters_at_once_and_nothing_is_left_after_stop(
    slurm: ThrowawaySlurm, cluster: ThrowawaySlurm, tmp_path: Path
) -> None:
    script = tmp_path / "job.slurm"
    # The sleep ignores SIGTERM and runs in its own session, as a stubborn training might.
    script.write_text("#!/bin/bash\nsrun true\ntrap '' TERM; setsid sleep 1000 & echo started; wait\n")
    with cluster:
        job = cluster.submit(script, cwd=tmp_path, options=["--nodelist=node5"])
        wait_until(lambda: cluster.job_output(job) == "started\n")
        cgroups = list(CGROUP_V1.glob("*/slurm_node5"))
        assert bool(cgroups) == cluster.memory_enforced
        assert len(cluster.processes()) >= 3
    assert cluster.processes() == []
    assert not any(path.exists() for path in cgroups)
    assert slurm.processes() != []
    cluster.stop()  # a second stop does nothing


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL], ids=lambda end: end.name)
def test_interrupted_test_process_leaves_no_cluster(
    cluster: ThrowawaySlurm, tmp_path: Path, end: signal.Signals
) -> None:
    """`cluster` only looks for the processes of the one that the child starts in the same folder."""
    (tmp_path / "job.slurm").write_text("#!/bin/bash\nsleep 1000\n")
    code = """if True:
        import sys, time
        from pathlib import Path
        from throwaway_slurm import ThrowawaySlurm
        cluster = ThrowawaySlurm(Path(sys.argv[1]))
        cluster.start()
        job = cluster.submit("job.slurm", cwd=Path(sys.argv[2]))
        while cluster.state(job) != "RUNNING":
            time.sleep(0.1)
        print("running", flush=True)
        time.sleep(1000)
    """
    command = [sys.executable, "-c", code, str(cluster.base_dir), str(tmp_path)]
    path = {"PYTHONPATH": f"{REPO}:{Path(__file__).parent}"}
    with subprocess.Popen(command, env=os.environ | path, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout.readline() == "running\n"
        assert cluster.processes() != []
        child.send_signal(end)
    wait_until(lambda: cluster.processes() == [])
