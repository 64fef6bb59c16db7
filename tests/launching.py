"""The environment in which tests start the launchers."""

import os
import subprocess
import sys
from pathlib import Path

REPO = Path(__file__).parents[1]
# This test's Python first, so that the launchers find its packages.
PATH = f"{Path(sys.executable).parent}:{os.environ['PATH']}"


def tiny_profile() -> dict[str, str]:
    """The environment after `source tiny.env`, with this test's Python first on PATH."""
    command = f"source {REPO}/tiny.env && env -0"
    answer = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True).stdout
    variables = dict(line.split("=", 1) for line in answer.split("\0") if "=" in line)
    return variables | {"PATH": PATH}
