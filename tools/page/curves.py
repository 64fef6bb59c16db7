"""What a run measured over time, as few points as a chart can show: every point is a sample, nothing is averaged."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tools.errors import LogError
from tools.logs.memory_logs import cpu_lines, gpu_lines
from tools.logs.run import Run

MOST_POINTS = 100  # of a line: a page of 1,000 runs stays small
_MOST_GPUS_POINTS = 400  # of all lines of a run's GPUs together


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


def charts(run: Run) -> list[Chart]:
    """The run's charts that have something to draw, or a log that cannot be read."""
    time, memory = "time since the log's start (s)", "memory (MiB)"
    found = [
        (Chart("loss", "Training loss", "step", "loss"), _over_steps(run, "loss", "loss")),
        (Chart("step_time", "Step time", "step", "step time (s)"), _over_steps(run, "step time", "step_time_s")),
        (Chart("gpu_memory", "GPU memory in use", time, memory), _gpu_memory(run)),
        # Summed RSS counts shared pages once per process, summed PSS once.
        (
            Chart("cpu_memory", "CPU memory of all processes", time, memory),
            (_line(*line) for kind in ("RSS", "PSS") for line in cpu_lines(run, kind)),
        ),
    ]
    for chart, lines in found:
        try:
            chart.lines = [line for line in lines if line.x]
        except LogError as error:
            chart.problem = str(error)
    return [chart for chart, _ in found if chart.lines or chart.problem]


def _over_steps(run: Run, name: str, column: str) -> Iterator[Line]:
    """The curve, and a vertical line at each step from which the run was resumed."""
    if (steps := run.steps) is None:
        return
    curve = _line(name if run.resumptions else "", steps.step, getattr(steps, column))
    yield curve
    if curve.y:
        for place, text in run.resumptions:
            yield Line(text, [place, place], [min(curve.y), max(curve.y)])


def _gpu_memory(run: Run) -> Iterator[Line]:
    """A line per GPU of every node."""
    samples = list(gpu_lines(run))
    most = max(16, min(MOST_POINTS, _MOST_GPUS_POINTS // max(1, len(samples))))
    yield from (_line(*sample, most) for sample in samples)


def _line(name: str, x: Sequence[float], y: Sequence[float], most: int = MOST_POINTS) -> Line:
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
