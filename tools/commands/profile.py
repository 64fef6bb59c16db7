"""Compare the profiled steps of runs (PROFILE=10:10): what the GPU did, how long, and what it waited for.

Shares and times are those with the profiler running; the step without it is beside them. The trace is PyTorch's, in
Chrome's format: kernels, copies and fills of the GPU and the CPU's operators, each with its category, its beginning
and its length (microseconds). profile.txt says how long the steps took, and names the costliest kernels.
"""

import argparse
import gzip
import json
import re
from collections import Counter
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import NamedTuple

from tools.commands.options import single_run
from tools.errors import LogError
from tools.logs.run import Run
from tools.logs.sources import summary
from tools.tables.markdown import markdown
from workshop.record.errors import read_plain
from workshop.record.gpu_time import merged, shares
from workshop.record.printable import one_line

_SHARES = ("Computing or copying (%)", "Communicating (%)", "Communicating alone (%)", "Idle (%)")
_HEADING = re.compile(r"steps (\d+) to (\d+), rank 0, ([\d.]+) ms")
_ON_GPU = ("kernel", "gpu_memcpy", "gpu_memset")
_ON_CPU = ("cpu_op", "user_annotation")
# By what names contain, the first that fits: kernels of cuBLAS, PyTorch, Triton, Liger, NCCL, and documents.py.
CLASSES = {
    "communication": r"nccl",
    "copies to and from the CPU": r"Memcpy (HtoD|DtoH)",
    "attention": r"flash|fmha|flex_attention|cudnn.*sdpa|^_forward$|^_backward_(queries|keys)$",
    "matrix products": r"gemm|nvjet|cutlass|cublas|xmma|splitK",
    "optimizer and clipping": r"multi_tensor_apply|adam",
    "softmax and loss": r"softmax|logsumexp|cross_entropy|nll_loss",
    "norms, casts and the rest": r"",
}


class Event(NamedTuple):
    """What the GPU or the CPU did, from when until when (microseconds)."""

    name: str
    start: float
    end: float


def add_arguments(parser: argparse.ArgumentParser) -> None:
    folders = "the run, then those to compare it with"
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN_FOLDER", help=folders)


def main(arguments: argparse.Namespace) -> int:
    runs = [single_run(folder) for folder in arguments.runs]
    columns = [profile(run) for run in runs]
    rows = [[label, *(column[label] for column in columns)] for label in columns[0]]
    print(markdown(["Profile", *(run.configuration or run.folder.name for run in runs)], rows))
    return 0


def profile(run: Run) -> dict[str, str]:
    """The cells of a run, by row. Raises LogError where there is no trace, a damaged one, or one without a GPU."""
    kernels, operators = _events(run)
    heading = run.folder / "profile.txt"
    first_line = read_plain(heading).decode("utf-8", "replace").partition("\n")[0]
    if not (said := _HEADING.match(first_line)):
        raise LogError(heading, 1, first_line, "the steps and their time, as `steps 10 to 12, rank 0, 829.7 ms`")
    first, count, wall_ms = int(said[1]), int(said[2]) - int(said[1]) + 1, float(said[3])
    log, warmup = run.steps, summary(run).get("warmup_steps", 0)
    # The profiler did not slow them down, nor the warm-up.
    times = zip(log.step, log.step_time_s, strict=True) if log else ()
    usual_s = [time_s for step, time_s in times if warmup < step < first]
    parts = shares([(name, (start, end)) for name, start, end in kernels], 1000 * wall_ms).values()
    times_us: Counter[str] = Counter()
    for name, start, end in kernels:
        times_us[next(kind for kind, words in CLASSES.items() if re.search(words, name, re.IGNORECASE))] += end - start
    gap_us, beside = _longest_gap(kernels, operators)
    return {
        "Step (ms), without the profiler": f"{1000 * median(usual_s):,.1f}" if usual_s else "not measured",
        "Step (ms), with it": f"{wall_ms / count:,.1f}",
        **{label: f"{100 * share:.1f}" for label, share in zip(_SHARES, parts, strict=True)},
        "Kernels per step": f"{len(kernels) / count:,.0f}",
        "Median kernel (us)": f"{median(end - start for _, start, end in kernels):,.1f}",
        "Longest gap (ms)": f"{gap_us / 1000:,.2f}",
        "What the CPU did in it": one_line(beside).replace("|", "/"),
        **{f"{name} (ms)": f"{times_us[name] / 1000 / count:,.1f}" for name in CLASSES},
    }


def _events(run: Run) -> tuple[list[Event], list[Event]]:
    """What the GPU of rank 0 ran, copies included, and what the CPU did meanwhile."""
    path = run.folder / "profile_trace.json.gz"
    if path.name not in run.files:
        raise LogError(run.folder, None, f"no {path.name}", "a run with PROFILE=10:10")
    kernels, operators = [], []
    try:
        for event in json.loads(gzip.decompress(read_plain(path)))["traceEvents"]:
            if event.get("ph") == "X" and event.get("cat") in (*_ON_GPU, *_ON_CPU):
                start = float(event["ts"])
                where = kernels if event["cat"] in _ON_GPU else operators
                where.append(Event(str(event["name"]), start, start + float(event["dur"])))
    except (OSError, EOFError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise LogError(path, None, str(error), "a trace of PyTorch's profiler") from error
    if not kernels:
        raise LogError(path, None, "no kernel of a GPU", "a run on a GPU")
    return kernels, operators


def _longest_gap(kernels: list[Event], operators: list[Event]) -> tuple[float, str]:
    """The longest time in which the GPU did nothing (microseconds), and what the CPU did.

    That is the shortest operator that lasted at least half of the gap: the operators around it last longer.
    """
    gaps = [(before[1], after[0]) for before, after in pairwise(merged((start, end) for _, start, end in kernels))]
    start, end = max(gaps, key=lambda gap: gap[1] - gap[0], default=(0.0, 0.0))
    beside = [event for event in operators if min(event.end, end) - max(event.start, start) > (end - start) / 2]
    shortest = min(beside, key=lambda event: event.end - event.start, default=None)
    return end - start, shortest.name if shortest else "nothing that PyTorch records"
