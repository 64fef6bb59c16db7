"""Simulated steps: kept ones (steps.json), others from processes of their own, which need PyTorch; the tools do not.

steps.json holds the steps of all lines of the exercises' lists and of the reference runs, so that these are
planned at once and without PyTorch. `python -m tools plan fit` simulates them all anew.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
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


def steps(shapes: list[Shape]) -> list[Step | InputError]:
    """What workshop.simulate.step_on_meta says of each step, in the order given; equal ones are simulated once.

    In the place of one that cannot be simulated, as of a model of an unknown shape, is an error.

    Raises:
        InputError: PyTorch is not installed.
    """
    known = _known()
    others = {key(shape): shape for shape in shapes if key(shape) not in known}
    if others:
        known.update(zip(others, simulate(list(others.values())), strict=True))
    return [known[key(shape)] for shape in shapes]


def without_errors(found: Iterable[T | InputError]) -> list[T]:
    """All of them; raises the first error among them."""
    for one in found:
        if isinstance(one, InputError):
            raise one
    return list(found)


def simulate(shapes: list[Shape]) -> list[Step | InputError]:
    """Without those that are kept, in two processes side by side, with a progress bar."""
    from tqdm import tqdm

    count = min(2, len(shapes))
    with ExitStack() as stack:
        next_steps = [stack.enter_context(_steps_of(shapes[number::count])) for number in range(count)]
        every_s = 0.1 if sys.stderr.isatty() else 10
        numbers = tqdm(range(len(shapes)), "simulating", unit="step", leave=False, mininterval=every_s)
        return [next_steps[number % count]() for number in numbers]


@contextmanager
def _steps_of(shapes: list[Shape]) -> Iterator[Callable[[], Step | InputError]]:
    """Start workshop.simulate.step_on_meta; give a function that returns its next step. It ends with the block."""
    # Looking for cycles among what PyTorch's import makes takes a fifth of the start.
    code = "import gc; gc.disable(); from workshop.simulate.step_on_meta import main; main()"
    with TemporaryFile("w+") as given, TemporaryFile("w+") as errors:  # pipes would have to be served while it works
        given.writelines(f"{json.dumps(shape)}\n" for shape in shapes)
        given.seek(0)

        def next_step() -> Step | InputError:
            if line := process.stdout.readline():
                step = json.loads(line)
                return InputError(step["error"]) if "error" in step else step
            errors.seek(0)
            raise InputError(errors.read().strip().splitlines()[-1])

        command = [sys.executable, "-c", code]
        with subprocess.Popen(
            command, cwd=ROOT, stdin=given, stdout=subprocess.PIPE, stderr=errors, text=True
        ) as process:
            try:
                yield next_step
            finally:
                process.kill()


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
