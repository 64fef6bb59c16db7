"""Starting the chapter's launchers in the tiny profile, for the tests here and those under SLURM."""

import subprocess
from pathlib import Path

from tests.launching import REPO, tiny_profile

SHORT = {
    "MAX_STEPS": "8",
    "TRAIN_SIZE": "64",
    "EVAL_SIZE": "8",
    "SAVE": "no",
    "GENERATE_SIZE": "0",
    "OMP_NUM_THREADS": "1",
}


def launch(logs: Path, script: str, *arguments: str, **variables: str) -> tuple[subprocess.CompletedProcess, Path]:
    """The finished launcher and its run folder."""
    environment = tiny_profile() | SHORT | {"LOG_DIR": str(logs)} | variables
    command = ["bash", f"custom_model/{script}", *arguments]
    job = subprocess.run(command, cwd=REPO, env=environment, capture_output=True, text=True, timeout=240)
    (run,) = logs.glob("custom_model/*")
    return job, run
