"""A run's trace: what its GPU did in the steps that PROFILE names, by class of kernel, and what it waited for.

The trace is PyTorch's, in Chrome's format: kernels, copies and fills of the GPU and the CPU's operators, each with its
category, its beginning and its length (microseconds). profile.txt says how long the steps took.
"""

from __future__ import annotations

import gzip
import json
import re
from dataclasses import dataclass
from itertools import pairwise

from tools.errors import LogError
from tools.logs.run import Run
from workshop.run_folder.gpu_time import merged
from workshop.run_folder.safe_open import read_plain

_HEADING = re.compile(r"steps (\d+) to (\d+), rank 0, ([\d.]+) ms")
_ON_GPU = ("kernel", "gpu_memcpy", "gpu_memset")
_ON_CPU = ("cpu_op", "user_annotation")
# By what names contain, the first that fits: kernels of cuBLAS, PyTorch, Triton, Liger, NCCL, and documents_triton.py.
_CLASSES = {
    "communication": r"nccl",
    "copies to and from the CPU": r"Memcpy (HtoD|DtoH)",
    "attention": r"flash|fmha|flex_attention|cudnn.*sdpa|^_forward$|^_backward_(queries|keys)$",
    "matrix products": r"gemm|nvjet|cutlass|cublas|xmma|splitK",
    "optimizer and clipping": r"multi_tensor_apply|adam",
    "softmax and loss": r"softmax|logsumexp|cross_entropy|nll_loss",
}
REST = "norms, casts and the rest"
CLASSES = (*_CLASSES, REST)


@dataclass(frozen=True)
class Event:
    """What ran from start to end (microseconds)."""

    name: str
    start_us: float
    end_us: float


@dataclass(frozen=True)
class Trace:
    """The profiled steps of a run's rank 0.

    Attributes:
        first, last: the steps.
        wall_us: their time with the profiler running.
        kernels: what the GPU ran, copies included.
        operators: what the CPU did meanwhile.
    """

    first: int
    last: int
    wall_us: float
    kernels: list[Event]
    operators: list[Event]

    def longest_gap(self) -> Event:
        """The longest time in which the GPU did nothing, under the name of what the CPU did.

        That is the shortest operator that lasted at least half of the gap: the operators around it last longer.
        """
        busy = merged((kernel.start_us, kernel.end_us) for kernel in self.kernels)
        gaps = [(before[1], after[0]) for before, after in pairwise(busy)]
        start, end = max(gaps, key=lambda gap: gap[1] - gap[0], default=(0.0, 0.0))
        beside = [one for one in self.operators if min(end, one.end_us) - max(start, one.start_us) > (end - start) / 2]
        shortest = min(beside, key=lambda one: one.end_us - one.start_us, default=None)
        return Event(shortest.name if shortest else "nothing that PyTorch records", start, end)


def class_of(kernel: str) -> str:
    """One of CLASSES."""
    return next((name for name, words in _CLASSES.items() if re.search(words, kernel, re.IGNORECASE)), REST)


def read_trace(run: Run) -> Trace:
    """A run's trace. Raises LogError where there is none, where it is damaged, and where no GPU ran."""
    heading, path = run.folder / "profile.txt", run.folder / "profile_trace.json.gz"
    if path.name not in run.files:
        raise LogError(run.folder, None, f"no {path.name}", "a run with PROFILE=10:10")
    first_line = read_plain(heading).decode("utf-8", "replace").partition("\n")[0]
    if not (said := _HEADING.match(first_line)):
        raise LogError(heading, 1, first_line, "the steps and their time, as `steps 10 to 12, rank 0, 829.7 ms`")
    try:
        found = json.loads(gzip.decompress(read_plain(path)))["traceEvents"]
        timed = [one for one in found if one.get("ph") == "X" and one.get("cat") in (*_ON_GPU, *_ON_CPU)]
        events = [(one["cat"], Event(str(one["name"]), one["ts"], one["ts"] + one["dur"])) for one in timed]
    except (OSError, EOFError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise LogError(path, None, str(error), "a trace of PyTorch's profiler") from error
    kernels = [event for category, event in events if category in _ON_GPU]
    if not kernels:
        raise LogError(path, None, "no kernel of a GPU", "a run on a GPU")
    operators = [event for category, event in events if category in _ON_CPU]
    return Trace(int(said[1]), int(said[2]), float(said[3]) * 1000, kernels, operators)
