"""What a run measured over time, as few points as a chart can show: every point is a sample, nothing is averaged."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from tools.errors import LogError
from tools.logs.memory_logs import read_logs
from tools.logs.run import Run

MOST_POINTS = 100  # of a line: a page of 1,000 runs stays small
_GPU_LINES = 4  # more lines of a run share their points
# What a loss can be drawn over: the axis' label, and its values from the steps.
OVER: dict[str, tuple[str, Callable]] = {
    "step": ("step", lambda steps: steps.step),
    "examples": ("training examples", lambda steps: None if steps.samples is None else steps.samples.cumsum()),
    "time": ("time in steps (s)", lambda steps: steps.step_time_s.cumsum()),
}
# RSS is summed: shared pages count once per process, in PSS once.
_MEMORY_LOGS = {"GPU": "gpu_memory", "RSS": "cpu_memory", "PSS": "cpu_pss"}
# Key, title, labels of the axes, and what the lines are of: a column of steps.csv, or logs of memory.
_CHARTS = (
    ("loss", "Training loss", "", "loss", "loss"),
    ("step_time", "Step time", "", "step time (s)", "step_time_s"),
    ("gpu_memory", "GPU memory in use", "time since the log's start (s)", "memory (MiB)", ("GPU",)),
    ("cpu_memory", "CPU memory of all processes", "time since the log's start (s)", "memory (MiB)", ("RSS", "PSS")),
)


@dataclass(frozen=True)
class Line:
    """A name for the legend, and the points."""

    name: str
    x: list[float]
    y: list[float]


@dataclass
class Chart:
    """Attributes: key: names it in links and in scripts; lines: none: there is nothing to draw;
    problem: why a log cannot be read, "" if it can.
    """

    key: str
    title: str
    x_label: str
    y_label: str
    lines: list[Line] = field(default_factory=list)
    problem: str = ""


def charts(run: Run, over: str = "step", most: int = MOST_POINTS) -> list[Chart]:
    """The run's charts that have something to draw, or a log that cannot be read.

    Args: over: one of OVER; most: points of a line.
    """
    found = []
    for key, title, x_label, y_label, source in _CHARTS:
        chart = Chart(key, title, x_label or OVER[over][0], y_label)
        lines = _over_steps(run, source, over, most) if isinstance(source, str) else _memory(run, source, most)
        try:
            chart.lines = [line for line in lines if line.x]
        except LogError as error:
            chart.problem = str(error)
        found += [chart] if chart.lines or chart.problem else []
    return found


def _over_steps(run: Run, column: str, over: str, most: int) -> Iterator[Line]:
    """The curve, and a vertical line at each step from which the run was resumed."""
    steps = run.steps
    places = OVER[over][1](steps) if steps else None
    if places is None:
        return
    name = column.removesuffix("_s").replace("_", " ") if run.resumptions else ""
    curve = _line(name, places, getattr(steps, column), most)
    yield curve
    if curve.y:
        for step, text in run.resumptions:
            place = float(places[min(steps.step.searchsorted(step), steps.step.size - 1)])
            yield Line(text, [place, place], [min(curve.y), max(curve.y)])


def _memory(run: Run, kinds: Sequence[str], most: int) -> Iterator[Line]:
    """A line per node, and per GPU: "node1 GPU 0", "node1 RSS"."""
    samples = []
    for kind in kinds:
        for node, log in read_logs(run, _MEMORY_LOGS[kind]).items():
            for gpu in sorted(set(log.gpu)) or [None]:
                here = [place for place in range(len(log.mib)) if gpu is None or log.gpu[place] == gpu]
                name = f"{node} {kind}{'' if gpu is None else f' {gpu}'}".strip()
                samples.append((name, [log.time_s[place] for place in here], [log.mib[place] for place in here]))
    shared = max(16, min(most, most * _GPU_LINES // max(1, len(samples))))
    yield from (_line(*sample, shared) for sample in samples)


def _line(name: str, x: Sequence[float], y: Sequence[float], most: int) -> Line:
    """At most `most` points, rounded: the first, the last and of each stretch the smallest and the largest."""
    points = [point for point in zip(x, y, strict=True) if math.isfinite(point[0]) and math.isfinite(point[1])]
    if len(points) > most:
        last = len(points) - 1
        length = math.ceil((last - 1) / ((most - 2) // 2))
        kept = {0, last}
        for start in range(1, last, length):
            stretch = range(start, min(start + length, last))
            kept |= {end(stretch, key=lambda place: points[place][1]) for end in (min, max)}
        points = [points[place] for place in sorted(kept)]
    return Line(name, *([float(f"{point[axis]:.6g}") for point in points] for axis in (0, 1)))
