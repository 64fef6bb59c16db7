"""A disk that is small enough to be filled."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    """small_disk(mib) mounts it."""
    disk = tmp_path / "disk"
    disk.mkdir()

    def mounted(mib: int) -> Path:
        command = ["mount", "-t", "tmpfs", "-o", f"size={mib}m", "none", disk]
        if subprocess.run(command, capture_output=True).returncode:
            pytest.skip("only root can make a small disk")
        return disk

    yield mounted
    subprocess.run(["umount", disk], capture_output=True)
