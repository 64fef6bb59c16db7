"""Simulated steps: kept ones (steps.json), others from a process of its own, which needs PyTorch; the tools do not.

steps.json holds the steps of all lines of the exercises' lists and of the reference runs, so that these are
planned at once and without PyTorch. `python -m tools plan --fit` simulates them all anew.
"""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

from tools.errors import InputError
from tools.tables.repository import ROOT

FILE = Path(__file__).with_name("steps.json")
# Of workshop.tensor_bytes.Part, what memory.py reads.
_PART = ("peak_bytes", "peak_with_gradients_bytes", "gradient_bytes")

Shape = dict[str, Any]
Step = dict[str, Any]


def key(shape: Shape) -> str:
    return json.dumps(shape, sort_keys=True)


def steps(shapes: list[Shape]) -> list[Step]:
    """What workshop.step_on_meta says of each step, in the order given; equal ones are simulated once.

    Raises:
        InputError: it cannot simulate one of them, as a model of an unknown shape; or PyTorch is not installed.
    """
    known = _kept()
    others = {key(shape): shape for shape in shapes if key(shape) not in known}
    found = known | dict(zip(others, simulate(list(others.values())) if others else [], strict=True))
    return [found[key(shape)] for shape in shapes]


def steps_or_errors(shapes: list[Shape]) -> list[Step | InputError]:
    """The same; what cannot be simulated spoils only its own place."""
    try:
        return [*steps(shapes)]  # together, because PyTorch's start takes longer than a step
    except InputError as error:
        if len({key(shape) for shape in shapes} - _kept().keys()) == 1:  # then there is no doubt which one
            return [_kept().get(key(shape), error) for shape in shapes]
        return [_step_or_error(shape) for shape in shapes]


def _step_or_error(shape: Shape) -> Step | InputError:
    try:
        return steps([shape])[0]
    except InputError as error:
        return error


def simulate(shapes: list[Shape]) -> list[Step]:
    """Without those that are kept. Raises as `steps`."""
    lines = "\n".join(map(json.dumps, shapes))
    command = [sys.executable, "-m", "workshop.step_on_meta"]
    answer = subprocess.run(command, cwd=ROOT, input=lines, capture_output=True, text=True)
    if answer.returncode:
        raise InputError(answer.stderr.strip().splitlines()[-1].removeprefix("error: "))
    return [json.loads(line) for line in answer.stdout.splitlines()]


@cache
def _kept() -> dict[str, Step]:
    kept = json.loads(FILE.read_text()) if FILE.exists() else {}
    for step in kept.values():
        step["parts"] = [dict(zip(_PART, part, strict=True)) for part in step["parts"]]
    return kept


def keep(shapes: list[Shape]) -> None:
    """Writes steps.json anew: these steps, simulated now."""
    wanted = {key(shape): shape for shape in shapes}
    found = sorted(zip(wanted, simulate(list(wanted.values())), strict=True))
    lines = (
        f"{json.dumps(name)}: "
        + json.dumps(step | {"parts": [[part[one] for one in _PART] for part in step["parts"]]}, separators=(",", ":"))
        for name, step in found
    )
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    _kept.cache_clear()
