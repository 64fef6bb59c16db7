"""The test cluster itself leaves nothing on the machine."""

from pathlib import Path

import pytest
from throwaway_slurm import CGROUP_V1, ThrowawaySlurm

from tests.launching import wait_until


@pytest.fixture
def cluster(slurm_installed: None, tmp_path_factory: pytest.TempPathFactory) -> ThrowawaySlurm:
    """Not yet started. slurmd's sockets lie in its folder, whose paths the kernel limits to 107 characters: a test's
    own folder takes too many of them when tests run side by side.
    """
    return ThrowawaySlurm(tmp_path_factory.mktemp("cluster"), nodes=8)  # no other cluster here has an eighth node


def test_two_clusters_at_once_and_nothing_is_left_after_stop(
    slurm: ThrowawaySlurm, cluster: ThrowawaySlurm, tmp_path: Path
) -> None:
    script = tmp_path / "job.slurm"
    # The sleep ignores SIGTERM and runs in its own session, as a stubborn training might.
    script.write_text("#!/bin/bash\nsrun true\ntrap '' TERM; setsid sleep 1000 & echo started; wait\n")
    with cluster:
        job = cluster.submit(script, cwd=tmp_path, options=["--nodelist=node8"])
        wait_until(lambda: cluster.job_output(job) == "started\n")
        cgroups = list(CGROUP_V1.glob("*/slurm_node8"))
        assert bool(cgroups) == cluster.memory_enforced
        assert len(cluster.processes()) >= 3
    assert cluster.processes() == []
    assert not any(path.exists() for path in cgroups)
    assert slurm.processes() != []
    cluster.stop()  # a second stop does nothing
