"""Simulated steps: kept ones, remembered ones, others from processes of their own, which need PyTorch.

steps.json.xz holds the steps of all lines of the exercises' lists, of the reference runs, and of `plan model NAME` for
the shipped models: these are planned at once and without PyTorch. `python -m tools plan fit` simulates them all anew.
What is simulated for another question is remembered in ~/.cache/shardlab, as long as the code and the libraries stay
the same.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from tools.errors import InputError
from tools.tables.repository import ROOT
from workshop.run_folder.model_file import model_path

FILE = Path(__file__).with_name("steps.json.xz")
# Of workshop.simulate.tensor_bytes.Part, what memory.py reads.
_PART = ("peak_bytes", "peak_with_gradients_bytes", "gradient_bytes")
# What a remembered step depends on.
_CODE = ("workshop/simulate", "workshop/kernels/fast_models", "workshop/training/models.py", "custom_model/model.py")

Shape = dict[str, Any]
Step = dict[str, Any]
_known: dict[str, Step | InputError] = {}  # by this process


def key(shape: Shape) -> str:
    """fp16 and bf16 have the same sizes and operations, so a GPU with the other one needs no new simulation."""
    same = {"precision": "bf16"} if shape.get("precision") == "fp16" else {}
    return json.dumps(shape | same, sort_keys=True)


def steps(shapes: list[Shape]) -> list[Step | InputError]:
    """The simulated step of each shape, in their order; equal shapes are simulated once.

    A shape that cannot be simulated, as of an unknown model, gives an error.

    Raises:
        InputError: PyTorch is not installed.
    """
    others = {key(shape): shape for shape in shapes if key(shape) not in _known}
    for name in list(others):
        if step := _kept().get(name) or _remembered().get(_with_model(others[name])):
            _known[name] = _whole(step)
            del others[name]
    if others:
        with closing(simulate(list(others.values()))) as found:  # after an error, too, before it is printed
            for (name, shape), step in zip(others.items(), found, strict=True):
                packed = _packed(step)
                _known[name] = _whole(json.loads(packed))
                _remember(_with_model(shape), packed)
    return [_known[key(shape)] for shape in shapes]


def without_errors(found: list[Any]) -> list[Any]:
    """All of them. Raises the first error."""
    if error := next((one for one in found if isinstance(one, InputError)), None):
        raise error
    return found


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
def _kept() -> dict[str, Step]:
    return json.loads(lzma.decompress(FILE.read_bytes())) if FILE.exists() else {}


def keep(shapes: list[Shape]) -> None:
    """Simulate these shapes now, and write the file anew."""
    wanted = {key(shape): shape for shape in shapes}
    found = sorted(zip(wanted, simulate(list(wanted.values())), strict=True))
    lines = ",\n".join(f"{json.dumps(name)}: {_packed(step)}" for name, step in found)
    FILE.write_bytes(lzma.compress(f"{{\n{lines}\n}}\n".encode()))
    _kept.cache_clear()
    _known.clear()


def _packed(step: Step | InputError) -> str:
    """As JSON. Its parts are runs of equal differences: first values, differences, how many."""
    if isinstance(step, InputError):
        return json.dumps({"error": str(step)})
    rows = [[part[name] for name in _PART] for part in step["parts"]]
    runs: list[list[Any]] = []
    for row in rows:
        if runs:
            first, by, count = runs[-1]
            if count == 1:
                runs[-1][1] = by = [new - old for new, old in zip(row, first, strict=True)]
            if row == [old + count * one for old, one in zip(first, by, strict=True)]:
                runs[-1][2] += 1
                continue
            runs[-1][1] = by if count > 1 else [0] * len(_PART)
        runs.append([row, [0] * len(_PART), 1])
    return json.dumps(step | {"parts": runs}, separators=(",", ":"))


def _whole(step: Step) -> Step | InputError:
    if "error" in step:
        return InputError(step["error"])
    parts = [
        {name: first + number * by for name, first, by in zip(_PART, *run[:2], strict=True)}
        for run in step["parts"]
        for number in range(run[2])
    ]
    return step | {"parts": parts}


# ---- remembered between questions ----


@cache
def cache_file() -> Path:
    """Of this code and these libraries."""
    files = [path for place in _CODE for path in (sorted((ROOT / place).glob("*.py")) or [ROOT / place])]
    text = b"".join(path.read_bytes() for path in files)
    libraries = [version(name) for name in ("torch", "transformers", "peft")]
    digest = hashlib.sha256(text + json.dumps(libraries).encode()).hexdigest()[:16]
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return folder / "shardlab" / f"steps-{digest}.jsonl"


def _with_model(shape: Shape) -> str:
    """A name for the cache: a model's file may change."""
    path = model_path(shape["model_name"])
    return f"{key(shape)} {hashlib.sha256(path.read_bytes()).hexdigest() if path else ''}"


@cache
def _remembered() -> dict[str, Step]:
    try:
        return dict(json.loads(line) for line in cache_file().read_text().splitlines())
    except (OSError, ValueError, ImportError):  # none yet, or another question was cut off in the middle of a line
        return {}


def _remember(name: str, packed: str) -> None:
    with suppress(OSError, ImportError):
        cache_file().parent.mkdir(parents=True, exist_ok=True)
        with cache_file().open("a") as file:
            file.write(f"[{json.dumps(name)}, {packed}]\n")
