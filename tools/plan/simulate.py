"""Simulated steps: kept ones, remembered ones, others from processes of their own, which need PyTorch.

steps.txt.xz holds the steps of all lines of the exercises' lists, of the reference runs, and of `plan model NAME` for
the shipped models: these are planned at once and without PyTorch. `python -m tools plan fit` simulates those that are
missing, and all after a new _VERSION. What is simulated for another question is remembered in ~/.cache/shardlab, as
long as code and libraries stay the same. Both have on a line a shape, a tab, and what it needs.
"""

import hashlib
import json
import lzma
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from functools import cache
from importlib.metadata import version
from itertools import accumulate, pairwise
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from tools.errors import InputError
from workshop.record.exercises import REPO
from workshop.settings.model_file import model_path

# Of the figures. Raise it where a change of the simulation or of a library changes one, then run `plan fit`: a test
# simulates some steps of the file and compares them (tests/tools/plan/test_accuracy.py).
_VERSION = 1
FILE = Path(__file__).with_name("steps.txt.xz")
# What a remembered step depends on.
_CODE = ("workshop/simulate", "workshop/kernels/fast_models", "workshop/training/models.py", "custom_model/model.py")
# Of workshop.simulate.tensor_bytes.Part, what memory.py reads.
_PEAK, _WITH_GRADIENTS, _GRADIENTS = "peak_bytes", "peak_with_gradients_bytes", "gradient_bytes"

Shape = dict[str, Any]
SimulatedStep = dict[str, Any]
_simulated: dict[str, str] = {}  # packed, by this process; one that cannot be simulated has an `error`


def key(shape: Shape) -> str:
    """fp16 and bf16 have the same sizes and operations, so a GPU with the other one needs no new simulation."""
    same = {"precision": "bf16"} if shape.get("precision") == "fp16" else {}
    return json.dumps(shape | same, sort_keys=True)


def steps(shapes: list[Shape]) -> list[SimulatedStep]:
    """Simulate all of these shapes at once that are neither kept nor remembered. A step that cannot be has an `error`.

    An interrupted call goes on where it ended. Raises InputError if PyTorch is not installed.
    """
    missing = {key(shape): shape for shape in shapes if not known(shape)}
    if missing:
        with closing(simulate(list(missing.values()))) as found:  # after an error, too, before it is printed
            for (name, shape), step in zip(missing.items(), found, strict=True):
                _simulated[name] = _packed(step)
                _remember(f"{_with_model(shape)}\t{_simulated[name]}\n")
    return [_unpacked(known(shape)) for shape in shapes]


def known(shape: Shape) -> str:
    """Its packed step; "" if it has to be simulated."""
    name = key(shape)
    return _simulated.get(name) or _kept().get(name) or _remembered().get(_with_model(shape), "")


def step_of(shape: Shape) -> SimulatedStep:
    """The simulated step. Raises InputError for a shape that cannot be simulated, as of an unknown model."""
    (step,) = steps([shape])
    if "error" in step:
        raise InputError(step["error"])
    return step


def simulate(shapes: list[Shape]) -> Iterator[SimulatedStep]:
    """Simulate all shapes in processes of their own, with a progress bar; a shape that cannot be has an `error`."""
    from tqdm import tqdm

    # Looking for cycles among what PyTorch's import makes takes a fifth of the start.
    code = "import gc; gc.disable(); from workshop.simulate.step_on_meta import main; main()"
    with TemporaryFile("w+") as given, TemporaryFile("w+") as errors:  # pipes would have to be served while it works
        given.writelines(f"{json.dumps(shape)}\n" for shape in shapes)
        given.seek(0)
        # With a GPU in sight torch.compile starts CUDA, which a forked process cannot.
        environ = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
        started = {"cwd": REPO, "stdin": given, "stdout": subprocess.PIPE, "stderr": errors, "start_new_session": True}
        every_s = 0.1 if sys.stderr.isatty() else 10
        with subprocess.Popen([sys.executable, "-c", code], **started, env=environ, text=True) as process:
            try:
                bar = {"unit": "step", "leave": False, "mininterval": every_s, "postfix": "the second time is instant"}
                for _ in tqdm(shapes, "simulating", **bar):
                    if not (line := process.stdout.readline()):
                        errors.seek(0)
                        raise InputError(errors.read().strip().splitlines()[-1])
                    yield json.loads(line)
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)  # also those that it has started


def _packed(step: SimulatedStep) -> str:
    """As JSON, of the parts the differences, which are mostly equal or 0: lzma makes a thirtieth of it."""
    if "error" not in step:
        rows = [[part[_PEAK], part[_WITH_GRADIENTS] - part[_PEAK], part[_GRADIENTS]] for part in step["parts"]]
        columns = [[new - old for old, new in pairwise([0, *column])] for column in zip(*rows, strict=True)]
        step = step | {"parts": columns}
    return json.dumps(step, separators=(",", ":"))


@cache
def _unpacked(packed: str) -> SimulatedStep:
    step = json.loads(packed)
    if "error" not in step:
        rows = zip(*map(accumulate, step["parts"]), strict=True)
        parts = [{_PEAK: peak, _WITH_GRADIENTS: peak + more, _GRADIENTS: ready} for peak, more, ready in rows]
        # Sizes of the parameters that have gradients and states: LoRA's adapters, or all.
        step = {"trained": step, **step, "parts": parts}
    return step


# ---- in files ----


@cache
def _kept() -> dict[str, str]:
    made, *lines = lzma.decompress(FILE.read_bytes()).decode().splitlines()
    return _by_shape(lines) if made == str(_VERSION) else {}


def keep(shapes: list[Shape]) -> None:
    """Simulate what the file lacks of these shapes, and write it anew with them alone."""
    steps(shapes)
    lines = sorted({f"{key(shape)}\t{known(shape)}" for shape in shapes})
    text = "\n".join([str(_VERSION), *lines, ""])
    FILE.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))
    _kept.cache_clear()


def _by_shape(lines: Iterable[str]) -> dict[str, str]:
    return dict(line.split("\t") for line in lines)


@cache
def cache_file() -> Path:
    """Its name has a digest: who works on the simulation is not answered by what the code was a minute ago."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    files = [path for place in _CODE for path in (sorted((REPO / place).glob("*.py")) or [REPO / place])]
    libraries = [version(name) for name in ("torch", "transformers", "peft")]
    text = b"".join(path.read_bytes() for path in files) + json.dumps([libraries, _VERSION]).encode()
    return folder / "shardlab" / f"steps-{hashlib.sha256(text).hexdigest()[:16]}.txt"


def _with_model(shape: Shape) -> str:
    """A name for the cache: a model's file may change."""
    path = model_path(shape["model_name"])
    return f"{key(shape)} {hashlib.sha256(path.read_bytes()).hexdigest() if path else ''}"


@cache
def _remembered() -> dict[str, str]:
    try:
        return _by_shape(cache_file().read_text().splitlines())
    except (OSError, ValueError, ImportError):  # none yet, or another question was cut off in the middle of a line
        return {}


def _remember(line: str) -> None:
    with suppress(OSError, ImportError):
        cache_file().parent.mkdir(parents=True, exist_ok=True)
        with cache_file().open("a") as file:
            file.write(line)
