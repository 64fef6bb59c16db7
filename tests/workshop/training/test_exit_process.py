"""A process ends well although native threads live on, and nothing is lost that Python's own end would have written."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.launching import REPO


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The lines of end_on_ranks.py."""
    environment = os.environ | {"PYTHONPATH": str(REPO), "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    environment["PYTHONUNBUFFERED"] = ""
    command = [sys.executable, str(Path(__file__).with_name("end_on_ranks.py")), str(tmp_path_factory.mktemp("ends"))]
    job = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert job.returncode == 0, job.stdout + job.stderr
    return job.stdout.splitlines()


def test_rank_is_not_aborted_while_gloo_lets_go_of_a_tensor(printed: list[str]) -> None:
    """SIGABRT after all results were written: Python ended gloo's thread inside of C++ code."""
    assert json.loads(printed[0]) == [0, 0]


def test_nothing_is_lost_and_nobody_stays(printed: list[str]) -> None:
    _, first, registered, of_c = printed
    worker, folder = first.split()
    assert (registered, of_c) == ("registered", "of a C library")
    assert not Path(folder).exists()
    assert not Path(f"/proc/{worker}").exists()
