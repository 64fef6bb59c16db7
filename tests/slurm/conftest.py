"""One real, small SLURM for all tests of this folder."""

import os
from collections.abc import Iterator

import pytest
from throwaway_slurm import ThrowawaySlurm, missing


@pytest.fixture(scope="session")
def slurm_installed() -> None:
    """Skip where SLURM is not installed; with REQUIRE_SLURM=1 fail, so that CI cannot lose these tests silently."""
    if missing():
        message = f"no {', '.join(missing())} on this machine (Debian: apt-get install slurmctld slurmd slurm-client)"
        if os.environ.get("REQUIRE_SLURM") == "1":
            pytest.fail(f"REQUIRE_SLURM=1, but {message}")
        pytest.skip(f"needs SLURM: {message}")


@pytest.fixture(scope="session")
def slurm(slurm_installed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThrowawaySlurm]:
    """Four nodes of eight GPUs in name only: as many as the documents ask for."""
    with ThrowawaySlurm(tmp_path_factory.mktemp("slurm"), nodes=4, gpus_per_node=8) as cluster:
        yield cluster
    assert cluster.processes() == []
