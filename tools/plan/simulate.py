"""Runs the simulation of a step in a process of its own: it needs PyTorch, the tools do not."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from tools.errors import InputError
from tools.tables.repository import ROOT


def simulate(shapes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What workshop.step_on_meta prints of each step, in the order given.

    Raises:
        InputError: it cannot simulate one of them, as a model of an unknown shape; or PyTorch is not installed.
    """
    lines = "\n".join(map(json.dumps, shapes))
    command = [sys.executable, "-m", "workshop.step_on_meta"]
    answer = subprocess.run(command, cwd=ROOT, input=lines, capture_output=True, text=True)
    if answer.returncode:
        raise InputError(answer.stderr.strip().splitlines()[-1].removeprefix("error: "))
    return [json.loads(line) for line in answer.stdout.splitlines()]
