"""Starting the chapter's launchers in the tiny profile, for the tests here and those under SLURM."""

import os
import subprocess
import sys
from pathlib import Path

REPO = Path(__file__).parents[2]
SHORT = {
    "MAX_STEPS": "8",
    "TRAIN_SIZE": "64",
    "EVAL_SIZE": "8",
    "SAVE": "no",
    "GENERATE_SIZE": "0",
    "OMP_NUM_THREADS": "1",
}


def tiny_profile() -> dict[str, str]:
    """The environment after `source tiny.env`, this test's Python first on PATH."""
    command = f"source {REPO}/tiny.env && env -0"
    answer = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True).stdout
    variables = dict(line.split("=", 1) for line in answer.split("\0") if "=" in line)
    return variables | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


def launch(logs: Path, script: str, *arguments: str, **variables: str) -> tuple[subprocess.CompletedProcess, Path]:
    """The finished launcher and its run folder."""
    environment = tiny_profile() | SHORT | {"LOG_DIR": str(logs)} | variables
    command = ["bash", f"custom_model/{script}", *arguments]
    job = subprocess.run(command, cwd=REPO, env=environment, capture_output=True, text=True, timeout=240)
    (run,) = logs.glob("custom_model/*")
    return job, run
