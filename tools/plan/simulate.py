"""Simulated steps: kept ones, remembered ones, others from processes of their own, which need PyTorch.

steps.json.xz holds the steps of all lines of the exercises' lists, of the reference runs, and of `plan model NAME` for
the shipped models: these are planned at once and without PyTorch. `python -m tools plan fit` simulates those that are
missing, and all after a change of the code or of a library.
What is simulated for another question is remembered in ~/.cache/shardlab, as long as the code and the libraries stay
the same.
"""

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
from itertools import accumulate, pairwise
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from tools.errors import InputError
from tools.tables.repository import ROOT
from workshop.settings.model_file import model_path

FILE = Path(__file__).with_name("steps.json.xz")
# Of workshop.simulate.tensor_bytes.Part, what memory.py reads.
_PART = ("peak_bytes", "peak_with_gradients_bytes", "gradient_bytes")
# What a remembered step depends on.
_CODE = ("workshop/simulate", "workshop/kernels/fast_models", "workshop/training/models.py", "custom_model/model.py")
_BY, _TIGHT = "code", (",", ":")  # the key of the digest in the file; as short as JSON gets

Shape = dict[str, Any]
Step = dict[str, Any]
_known: dict[str, Step] = {}  # by this process; one that cannot be simulated has an `error`


def key(shape: Shape) -> str:
    """fp16 and bf16 have the same sizes and operations, so a GPU with the other one needs no new simulation."""
    same = {"precision": "bf16"} if shape.get("precision") == "fp16" else {}
    return json.dumps(shape | same, sort_keys=True)


def prepare(shapes: list[Shape]) -> list[Shape]:
    """Simulate all of these shapes at once that are neither kept nor remembered. Returns those that cannot be.

    Raises InputError if PyTorch is not installed.
    """
    missing = {}
    for name, shape in {key(shape): shape for shape in shapes if key(shape) not in _known}.items():
        if step := _kept().get(name) or _remembered().get(_with_model(shape)):
            _known[name] = _unpacked(step)
        else:
            missing[name] = shape
    if missing:
        with closing(simulate(list(missing.values()))) as found:  # after an error, too, before it is printed
            for (name, shape), step in zip(missing.items(), found, strict=True):
                packed = _packed(step)
                _known[name] = _unpacked(json.loads(packed))
                _remember(_with_model(shape), packed)
    return [shape for shape in shapes if "error" in _known[key(shape)]]


def is_known(shape: Shape) -> bool:
    """Whether it need not be simulated."""
    return key(shape) in _known or key(shape) in _kept() or _with_model(shape) in _remembered()


def step_of(shape: Shape) -> Step:
    """The simulated step. Raises InputError for a shape that cannot be simulated, as of an unknown model."""
    prepare([shape])
    step = _known[key(shape)]
    if "error" in step:
        raise InputError(step["error"])
    return step


def simulate(shapes: list[Shape]) -> Iterator[Step]:
    """Simulate all shapes in processes of their own, with a progress bar; a shape that cannot be has an `error`."""
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
                    yield json.loads(line)
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)  # also those that it has started


@cache
def _kept() -> dict[str, Step]:
    return json.loads(lzma.decompress(FILE.read_bytes()))


def keep(shapes: list[Shape]) -> None:
    """Simulate what the file lacks of these shapes, and write it anew with them alone."""
    wanted = {key(shape): shape for shape in shapes}
    old = _kept() if _kept().get(_BY) == code_digest() else {}
    missing = {name: shape for name, shape in wanted.items() if name not in old}
    found = {name: json.dumps(old[name], separators=_TIGHT) for name in wanted if name in old}
    found |= zip(missing, map(_packed, simulate(list(missing.values()))), strict=True)
    lines = ",\n".join(f"{json.dumps(name)}: {step}" for name, step in sorted(found.items()))
    FILE.write_bytes(lzma.compress(f"{{{json.dumps(_BY)}: {json.dumps(code_digest())},\n{lines}\n}}\n".encode()))
    _kept.cache_clear()
    _known.clear()


def _packed(step: Step) -> str:
    """As JSON, of the parts the differences, which are mostly equal: lzma makes a fifth of it."""
    if "error" not in step:
        columns = {name: [0, *(part[name] for part in step["parts"])] for name in _PART}
        step = step | {"parts": {name: [new - old for old, new in pairwise(one)] for name, one in columns.items()}}
    return json.dumps(step, separators=_TIGHT)


def _unpacked(step: Step) -> Step:
    if "error" in step:
        return step
    rows = zip(*map(accumulate, step["parts"].values()), strict=True)
    return step | {"parts": [dict(zip(step["parts"], row, strict=True)) for row in rows]}


# ---- remembered between questions ----


@cache
def code_digest() -> str:
    """Of what a simulated step depends on: our code and the libraries."""
    files = [path for place in _CODE for path in (sorted((ROOT / place).glob("*.py")) or [ROOT / place])]
    text = b"".join(path.read_bytes() for path in files)
    libraries = [version(name) for name in ("torch", "transformers", "peft")]
    return hashlib.sha256(text + json.dumps([libraries, _PART]).encode()).hexdigest()[:16]


@cache
def cache_file() -> Path:
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return folder / "shardlab" / f"steps-{code_digest()}.jsonl"


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
