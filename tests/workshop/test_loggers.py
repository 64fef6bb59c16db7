"""Loggers end with their run, also with one that ends while they start."""

import os
import subprocess
from pathlib import Path

from tests.launching import PATH, REPO, wait_until
from tests.leftovers import processes_of

# Sourced by every bash: a machine so busy that something happens between any two commands.
SLOW = "trap 'sleep 0.2' DEBUG\n"


def test_run_that_ends_while_its_loggers_start_leaves_none(tmp_path: Path) -> None:
    (tmp_path / "slow.sh").write_text(SLOW)
    slow = {"PATH": PATH, "RUN_DIR": str(tmp_path), "BASH_ENV": str(tmp_path / "slow.sh"), "PYTHONPATH": str(REPO)}
    with subprocess.Popen(["sleep", "1000"]) as training:
        loggers = subprocess.Popen([REPO / "workshop/loggers.sh", str(training.pid)], env=os.environ | slow)
        try:
            wait_until(lambda: any("memory_logger" in command for command in processes_of(tmp_path)))
            loggers.terminate()
            wait_until(lambda: loggers.poll() is not None and processes_of(tmp_path) == [])
        finally:
            training.kill()
