"""Nothing is lost that Python's own end of a process would have written, and no process stays."""

import os
import subprocess
import sys
from pathlib import Path

from tests.launching import REPO

ENDING = """
import atexit, ctypes, tempfile
from torch.utils.data import DataLoader
from workshop.job.exit_process import end_process

folder = tempfile.TemporaryDirectory()
batches = iter(DataLoader(range(4), num_workers=1, persistent_workers=True))
next(batches)
workers = [worker.pid for worker in batches._workers]
atexit.register(print, "registered")
print(*workers, folder.name)  # into a pipe: not flushed
ctypes.CDLL(None).puts(b"of a C library")  # nor is this
end_process()
"""


def test_nothing_is_lost_and_nobody_stays() -> None:
    environment = os.environ | {"PYTHONPATH": str(REPO), "CUDA_VISIBLE_DEVICES": "", "PYTHONUNBUFFERED": ""}
    job = subprocess.run([sys.executable, "-c", ENDING], env=environment, capture_output=True, text=True, timeout=300)
    assert job.returncode == 0, job.stdout + job.stderr
    first, registered, of_c = job.stdout.splitlines()
    worker, folder = first.split()
    assert (registered, of_c) == ("registered", "of a C library")
    assert not Path(folder).exists()
    assert not Path(f"/proc/{worker}").exists()
