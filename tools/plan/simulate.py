"""Simulated steps: kept ones (steps.json), others from processes of their own, which need PyTorch; the tools do not.

steps.json holds the steps of all lines of the exercises' lists and of the reference runs, so that these are
planned at once and without PyTorch. `python -m tools plan fit` simulates them all anew.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, TypeVar

from tools.errors import InputError
from tools.tables.repository import ROOT

FILE = Path(__file__).with_name("steps.json")
# Of workshop.simulate.tensor_bytes.Part, what memory.py reads.
_PART = ("peak_bytes", "peak_with_gradients_bytes", "gradient_bytes")

Shape = dict[str, Any]
Step = dict[str, Any]
T = TypeVar("T")


def key(shape: Shape) -> str:
    return json.dumps(shape, sort_keys=True)


def steps(shapes: list[Shape], all_or_none: bool = False) -> list[Step | InputError]:
    """The simulated step of each shape, in their order; equal shapes are simulated once.

    A shape that cannot be simulated, as of an unknown model, gives an error.

    Args: all_or_none: the first error ends it all.

    Raises:
        InputError: PyTorch is not installed.
    """
    known = _known()
    others = {key(shape): shape for shape in shapes if key(shape) not in known}
    if others:
        with closing(simulate(list(others.values()))) as found:  # after an error, too, before it is printed
            known.update(zip(others, without_errors(found) if all_or_none else found, strict=True))
    return [known[key(shape)] for shape in shapes]


def without_errors(found: Iterable[T | InputError]) -> list[T]:
    """All of them. Raises the first error, and asks for none after it."""
    every = []
    for one in found:
        if isinstance(one, InputError):
            raise one
        every.append(one)
    return every


def simulate(shapes: list[Shape]) -> Iterator[Step | InputError]:
    """Simulate all shapes in processes of their own, with a progress bar."""
    from tqdm import tqdm

    # Looking for cycles among what PyTorch's import makes takes a fifth of the start.
    code = "import gc; gc.disable(); from workshop.simulate.step_on_meta import main; main()"
    with TemporaryFile("w+") as given, TemporaryFile("w+") as errors:  # pipes would have to be served while it works
        given.writelines(f"{json.dumps(shape)}\n" for shape in shapes)
        given.seek(0)
        started = {"cwd": ROOT, "stdin": given, "stdout": subprocess.PIPE, "stderr": errors, "start_new_session": True}
        every_s = 0.1 if sys.stderr.isatty() else 10
        with subprocess.Popen([sys.executable, "-c", code], **started, text=True) as process:
            try:
                for _ in tqdm(shapes, "simulating", unit="step", leave=False, mininterval=every_s):
                    if not (line := process.stdout.readline()):
                        errors.seek(0)
                        raise InputError(errors.read().strip().splitlines()[-1])
                    step = json.loads(line)
                    yield InputError(step["error"]) if "error" in step else step
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)  # also those that it has started


@cache
def _known() -> dict[str, Step | InputError]:
    """The kept steps, and those that were simulated since."""
    kept = json.loads(FILE.read_text()) if FILE.exists() else {}
    for step in kept.values():
        step["parts"] = [dict(zip(_PART, part, strict=True)) for part in step["parts"]]
    return kept


def keep(shapes: list[Shape]) -> None:
    """Writes steps.json anew: these steps, simulated now."""
    wanted = {key(shape): shape for shape in shapes}
    found = sorted(zip(wanted, without_errors(simulate(list(wanted.values()))), strict=True))
    lines = (
        f"{json.dumps(name)}: "
        + json.dumps(step | {"parts": [[part[one] for one in _PART] for part in step["parts"]]}, separators=(",", ":"))
        for name, step in found
    )
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    _known.cache_clear()
