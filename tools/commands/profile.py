"""What the GPU did in the profiled steps of runs (PROFILE=10:10), side by side: idle time, and the costliest kernels.

Shares and times are those with the profiler running; the step without it is beside them.
"""

import argparse
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from statistics import median

from tools.commands.options import single_run
from tools.logs.figures import read
from tools.logs.run import Run
from tools.logs.trace import CLASSES, Trace, class_of, read_trace
from workshop.run_folder.gpu_time import shares
from workshop.run_folder.printable import markdown, one_line

_COSTLIEST = 5  # kernels of each run
_NAME_WIDTH = 70
_SHARES = ("Computing or copying (%)", "Communicating (%)", "Communicating alone (%)", "Idle (%)")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs", type=Path, nargs="+", metavar="RUN_FOLDER", help="the run, then those to compare it with"
    )


def run(arguments: argparse.Namespace) -> int:
    runs = [single_run(folder) for folder in arguments.runs]
    traces = [read_trace(one) for one in runs]
    names = [str(one.rung or one.record.config or one.method or one.folder.name) for one in runs]
    if len({one.model for one in runs}) > 1:
        names = [f"{one.model}, {name}" for one, name in zip(runs, names, strict=True)]
    columns = [_column(one, trace) for one, trace in zip(runs, traces, strict=True)]
    print(markdown(["Profile", *names], [[label, *(column[label] for column in columns)] for label in columns[0]]))
    rows = [[name, *row] for name, trace in zip(names, traces, strict=True) for row in _costliest(trace)]
    print("\n" + markdown(["Costliest kernels", "Class", "Kernel", "ms per step", "Calls per step"], rows))
    return 0


def _column(run: Run, trace: Trace) -> dict[str, str]:
    """The cells of a run, by row."""
    steps = trace.last - trace.first + 1
    kernels = [(one.name, (one.start_us, one.end_us)) for one in trace.kernels]
    times_us = _times_us(trace, class_of)
    gap = trace.longest_gap()
    return {
        "Step (ms), without the profiler": _unprofiled_ms(run, trace),
        "Step (ms), with it": f"{trace.wall_us / 1000 / steps:,.1f}",
        **{
            label: f"{100 * share:.1f}"
            for label, share in zip(_SHARES, shares(kernels, trace.wall_us).values(), strict=True)
        },
        "Kernels per step": f"{len(kernels) / steps:,.0f}",
        "Median kernel (us)": f"{median(one.end_us - one.start_us for one in trace.kernels):,.1f}",
        "Longest gap (ms)": f"{(gap.end_us - gap.start_us) / 1000:,.2f}",
        "What the CPU did in it": _cell(gap.name),
        **{f"{name} (ms)": f"{times_us[name] / 1000 / steps:,.1f}" for name in CLASSES},
    }


def _unprofiled_ms(run: Run, trace: Trace) -> str:
    """Median of the steps that the profiler did not slow down, without the warm-up."""
    warmup = read(run, "summary.json", "warmup_steps") or 0
    steps = run.steps
    times_s = [] if steps is None else steps.step_time_s[(steps.step > warmup) & (steps.step < trace.first)].tolist()
    return f"{1000 * median(times_s):,.1f}" if times_s else "not measured"


def _costliest(trace: Trace) -> list[list[str]]:
    """Class, name, time and calls of the kernels that take most time, of equal names together."""
    steps = trace.last - trace.first + 1
    calls = Counter(one.name for one in trace.kernels)
    return [
        [class_of(name), f"`{_cell(name)}`", f"{time_us / 1000 / steps:,.2f}", f"{calls[name] / steps:,.0f}"]
        for name, time_us in _times_us(trace, str).most_common(_COSTLIEST)
    ]


def _times_us(trace: Trace, group_of: Callable[[str], str]) -> Counter[str]:
    """The time of the kernels of each group, given a kernel's name."""
    times_us: Counter[str] = Counter()
    for one in trace.kernels:
        times_us[group_of(one.name)] += one.end_us - one.start_us
    return times_us


def _cell(name: str) -> str:
    """A name of C++ or of a library, fit for a table."""
    plain = one_line(name).replace("|", "/").replace("`", "'")
    return plain if len(plain) <= _NAME_WIDTH else f"{plain[: _NAME_WIDTH - 3]}..."
