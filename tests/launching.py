"""The environment in which tests start the launchers."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from workshop.run_record import update_run_record

REPO = Path(__file__).parents[1]
# This test's Python first, so that the launchers find its packages.
PATH = f"{Path(sys.executable).parent}:{os.environ['PATH']}"


def tiny_profile() -> dict[str, str]:
    """The environment after `source tiny.env`, with this test's Python first on PATH."""
    command = f"source {REPO}/tiny.env && env -0"
    answer = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True).stdout
    variables = dict(line.split("=", 1) for line in answer.split("\0") if "=" in line)
    return variables | {"PATH": PATH}


def die_after(whole: Path, checkpoint: str, folder: Path) -> Path:
    """A copy of a run as it would be had its node failed some steps after a checkpoint."""
    shutil.copytree(whole, folder)
    (folder / "summary.json").unlink()
    for newer in (folder / "bloom-qa-finetuned").glob("checkpoint-*"):
        if newer.name != checkpoint:
            shutil.rmtree(newer)
    update_run_record(folder, state="running", exit_code=None, end_time=None)
    return folder
