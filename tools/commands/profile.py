"""Compare the profiled steps of runs (PROFILE=10:10): the GPU's idle time, and the costliest kernels.

Shares and times are those with the profiler running; the step without it is beside them. The trace is PyTorch's, in
Chrome's format: kernels, copies and fills of the GPU and the CPU's operators, each with its category, its beginning
and its length (microseconds). profile.txt says how long the steps took.
"""

import argparse
import gzip
import json
import re
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median

import pandas as pd

from tools.commands.options import single_run
from tools.errors import LogError
from tools.logs.run import Run
from tools.logs.sources import summary
from tools.tables.markdown import markdown
from workshop.record.errors import read_plain
from workshop.record.gpu_time import merged, shares
from workshop.record.printable import one_line

_COSTLIEST = 5  # kernels of each run
_NAME_WIDTH = 70
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


@dataclass(frozen=True)
class Trace:
    """The profiled steps of a run's rank 0.

    Attributes:
        first: the first step; steps: how many.
        wall_us: their time with the profiler running.
        kernels: what the GPU ran, copies included: a row each with its name, start, end and time (microseconds).
        operators: what the CPU did meanwhile, in the same columns.
    """

    first: int
    steps: int
    wall_us: float
    kernels: pd.DataFrame
    operators: pd.DataFrame

    def longest_gap(self) -> tuple[float, str]:
        """The longest time in which the GPU did nothing (microseconds), and what the CPU did.

        That is the shortest operator that lasted at least half of the gap: the operators around it last longer.
        """
        gaps = [(before[1], after[0]) for before, after in pairwise(merged(_intervals(self.kernels)))]
        start, end = max(gaps, key=lambda gap: gap[1] - gap[0], default=(0.0, 0.0))
        inside = self.operators.end.clip(upper=end) - self.operators.start.clip(lower=start)
        beside = self.operators[inside > (end - start) / 2]
        name = "nothing that PyTorch records" if beside.empty else beside.loc[beside.time.idxmin(), "name"]
        return end - start, name


def _intervals(events: pd.DataFrame) -> list[tuple[float, float]]:
    return list(zip(events.start, events.end, strict=True))


def class_of(kernel: str) -> str:
    """One of CLASSES."""
    return next(name for name, words in CLASSES.items() if re.search(words, kernel, re.IGNORECASE))


def read_trace(run: Run) -> Trace:
    """A run's trace. Raises LogError where there is none, where it is damaged, and where no GPU ran."""
    heading, path = run.folder / "profile.txt", run.folder / "profile_trace.json.gz"
    if path.name not in run.files:
        raise LogError(run.folder, None, f"no {path.name}", "a run with PROFILE=10:10")
    first_line = read_plain(heading).decode("utf-8", "replace").partition("\n")[0]
    if not (said := _HEADING.match(first_line)):
        raise LogError(heading, 1, first_line, "the steps and their time, as `steps 10 to 12, rank 0, 829.7 ms`")
    try:
        events = json.loads(gzip.decompress(read_plain(path)))["traceEvents"]
        timed = [event for event in events if event.get("ph") == "X" and event.get("cat") in (*_ON_GPU, *_ON_CPU)]
        rows = [(event["cat"], str(event["name"]), float(event["ts"]), float(event["dur"])) for event in timed]
    except (OSError, EOFError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise LogError(path, None, str(error), "a trace of PyTorch's profiler") from error
    frame = pd.DataFrame(rows, columns=["category", "name", "start", "time"]).assign(end=lambda of: of.start + of.time)
    kernels, operators = (frame[frame.category.isin(categories)] for categories in (_ON_GPU, _ON_CPU))
    if kernels.empty:
        raise LogError(path, None, "no kernel of a GPU", "a run on a GPU")
    first, last = int(said[1]), int(said[2])
    return Trace(first, last - first + 1, float(said[3]) * 1000, kernels, operators)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    folders = "the run, then those to compare it with"
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN_FOLDER", help=folders)


def main(arguments: argparse.Namespace) -> int:
    runs = [single_run(folder) for folder in arguments.runs]
    traces = [read_trace(run) for run in runs]
    names = [run.configuration or run.folder.name for run in runs]
    if len({run.model for run in runs}) > 1:
        names = [f"{run.model}, {name}" for run, name in zip(runs, names, strict=True)]
    columns = [_column(run, trace) for run, trace in zip(runs, traces, strict=True)]
    print(markdown(["Profile", *names], [[label, *(column[label] for column in columns)] for label in columns[0]]))
    rows = [[name, *row] for name, trace in zip(names, traces, strict=True) for row in _costliest(trace)]
    print("\n" + markdown(["Costliest kernels", "Class", "Kernel", "ms per step", "Calls per step"], rows))
    return 0


def _column(run: Run, trace: Trace) -> dict[str, str]:
    """The cells of a run, by row."""
    kernels, log, warmup = trace.kernels, run.steps, summary(run).get("warmup_steps", 0)
    # The profiler did not slow them down, nor the warm-up.
    usual_s = [] if log is None else log.step_time_s[(log.step > warmup) & (log.step < trace.first)].tolist()
    parts = shares(zip(kernels.name, _intervals(kernels), strict=True), trace.wall_us).values()
    times_us = kernels.time.groupby(kernels.name.map(class_of)).sum()
    gap_us, beside = trace.longest_gap()
    return {
        "Step (ms), without the profiler": f"{1000 * median(usual_s):,.1f}" if usual_s else "not measured",
        "Step (ms), with it": f"{trace.wall_us / 1000 / trace.steps:,.1f}",
        **{label: f"{100 * share:.1f}" for label, share in zip(_SHARES, parts, strict=True)},
        "Kernels per step": f"{len(kernels) / trace.steps:,.0f}",
        "Median kernel (us)": f"{kernels.time.median():,.1f}",
        "Longest gap (ms)": f"{gap_us / 1000:,.2f}",
        "What the CPU did in it": _cell(beside),
        **{f"{name} (ms)": f"{times_us.get(name, 0) / 1000 / trace.steps:,.1f}" for name in CLASSES},
    }


def _costliest(trace: Trace) -> list[list[str]]:
    """Class, name, time and calls of the kernels that take most time, added up by name."""
    kernels = trace.kernels.groupby("name", sort=False).time.agg(["sum", "count"]).nlargest(_COSTLIEST, "sum")
    return [
        [class_of(name), f"`{_cell(name)}`", f"{time_us / 1000 / trace.steps:,.2f}", f"{calls / trace.steps:,.0f}"]
        for name, time_us, calls in kernels.itertuples()
    ]


def _cell(name: str) -> str:
    """A name of C++ or of a library, fit for a table."""
    plain = one_line(name).replace("|", "/").replace("`", "'")
    return plain if len(plain) <= _NAME_WIDTH else f"{plain[: _NAME_WIDTH - 3]}..."
