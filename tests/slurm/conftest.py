"""One real, small SLURM for all tests of this folder."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from throwaway_slurm import ThrowawaySlurm, missing_programs


@pytest.fixture(scope="session")
def slurm_installed() -> None:
    """Skip where SLURM is not installed; with REQUIRE_SLURM=1 fail, so that CI cannot lose these tests silently."""
    missing = missing_programs()
    if missing:
        message = f"no {', '.join(missing)} on this machine (Debian: apt-get install slurmctld slurmd slurm-client)"
        if os.environ.get("REQUIRE_SLURM") == "1":
            pytest.fail(f"REQUIRE_SLURM=1, but {message}")
        pytest.skip(f"needs SLURM: {message}")


@pytest.fixture(scope="session")
def slurm(slurm_installed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThrowawaySlurm]:
    """A running cluster of two nodes with two GPUs in name only each."""
    with ThrowawaySlurm(tmp_path_factory.mktemp("slurm"), nodes=2, gpus_per_node=2) as cluster:
        yield cluster


@pytest.fixture
def cluster_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For a test's own cluster: slurmd's sockets lie in it, whose paths the kernel limits to 107 characters.

    With a test's name, its folder takes too many of them when tests run side by side.
    """
    return tmp_path_factory.mktemp("cluster")
