"""A process ends well although native threads live on, and nothing is lost that Python's own end would have written."""

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.launching import REPO

ENDING = """
import atexit, ctypes, tempfile
from torch.utils.data import DataLoader
from workshop.training.exit_process import end_process

folder = tempfile.TemporaryDirectory()
batches = iter(DataLoader(range(4), num_workers=1, persistent_workers=True))
next(batches)
workers = [worker.pid for worker in batches._workers]
atexit.register(print, "registered")
print(*workers, folder.name)  # into a pipe: not flushed
ctypes.CDLL(None).puts(b"of a C library")  # nor is this
end_process()
"""


def python(*arguments: str) -> list[str]:
    """The lines that it printed."""
    environment = os.environ | {"PYTHONPATH": str(REPO), "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    environment["PYTHONUNBUFFERED"] = ""
    job = subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True, timeout=300)
    assert job.returncode == 0, job.stdout + job.stderr
    return job.stdout.splitlines()


def test_rank_is_not_aborted_while_gloo_lets_go_of_a_tensor(tmp_path: Path) -> None:
    """SIGABRT after all results were written: Python ended gloo's thread inside of C++ code."""
    assert json.loads(python(str(Path(__file__).with_name("end_on_ranks.py")), str(tmp_path))[-1]) == [0, 0]


def test_nothing_is_lost_and_nobody_stays() -> None:
    first, registered, of_c = python("-c", ENDING)
    worker, folder = first.split()
    assert (registered, of_c) == ("registered", "of a C library")
    assert not Path(folder).exists()
    assert not Path(f"/proc/{worker}").exists()
