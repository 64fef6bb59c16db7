"""What a run measured over time, as few points as a chart can show: every point is a sample, nothing is averaged."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tools.errors import LogError
from tools.logs.memory_lines import cpu_lines, gpu_lines
from tools.logs.run import Run

if TYPE_CHECKING:
    import numpy as np

MOST_POINTS = 100  # of a line: a page of 1,000 runs stays small
_MOST_GPUS_POINTS = 400  # of all lines of a run's GPUs together
_DIGITS = 4


@dataclass(frozen=True)
class Line:
    """Attributes: name: for the legend; x, y: its points."""

    name: str
    x: list[float]
    y: list[float]


@dataclass
class Chart:
    """One chart of a run.

    Attributes:
        key: names it in links and in scripts.
        title, x_label, y_label: with units.
        lines: none: there is nothing to draw.
        problem: why a log cannot be read; "" if it can.
    """

    key: str
    title: str
    x_label: str
    y_label: str
    lines: list[Line] = field(default_factory=list)
    problem: str = ""

    @property
    def summary(self) -> str:
        """The chart in a sentence, for those who do not see it."""
        told = [_told(line) for line in self.lines[:4]]
        more = f"; {len(self.lines) - 4} more lines" if len(self.lines) > 4 else ""
        return f"{self.title}: {'; '.join(told)}{more}."

    def data(self) -> dict[str, Any]:
        """For the page's scripts."""
        lines = [{"name": line.name, "x": line.x, "y": line.y} for line in self.lines]
        return {"key": self.key, "title": self.title, "x": self.x_label, "y": self.y_label, "lines": lines}


def _told(line: Line) -> str:
    name = f"{line.name}, " if line.name else ""
    return (
        f"{name}from {line.y[0]:,g} at {line.x[0]:,g} to {line.y[-1]:,g} at {line.x[-1]:,g}, "
        f"least {min(line.y):,g}, largest {max(line.y):,g}"
    )


def charts(run: Run) -> list[Chart]:
    """The run's charts that have something to draw, or a log that cannot be read."""
    found = [
        Chart("loss", "Training loss", "step", "loss"),
        Chart("step_time", "Step time", "step", "step time (s)"),
        Chart("gpu_memory", "GPU memory in use", "time since the log's start (s)", "memory (MiB)"),
        Chart("cpu_memory", "CPU memory of all processes", "time since the log's start (s)", "memory (MiB)"),
    ]
    for chart in found:
        try:
            chart.lines = [line for line in _READERS[chart.key](run) if line.x]
        except LogError as error:
            chart.problem = str(error)
    return [chart for chart in found if chart.lines or chart.problem]


def _loss(run: Run) -> Iterator[Line]:
    if run.steps is not None:
        yield from _over_steps(run, "loss", run.steps.step, run.steps.loss)


def _step_time(run: Run) -> Iterator[Line]:
    if run.steps is not None:
        yield from _over_steps(run, "step time", run.steps.step, run.steps.step_time_s)


def _over_steps(run: Run, name: str, step: np.ndarray, y: np.ndarray) -> Iterator[Line]:
    """The curve and, of a run that went on, an upright line at each step from which it did."""
    curve = _line(name if run.resumptions else "", step, y)
    yield curve
    if curve.y:
        for place, text in run.resumptions:
            yield Line(text, [place, place], [min(curve.y), max(curve.y)])


def _gpu_memory(run: Run) -> Iterator[Line]:
    """A line per GPU of every node."""
    samples = list(gpu_lines(run))
    most = max(16, min(MOST_POINTS, _MOST_GPUS_POINTS // max(1, len(samples))))
    for sample in samples:
        yield _line(*sample, most)


def _cpu_memory(run: Run) -> Iterator[Line]:
    """Each node's summed RSS, which counts shared pages once per process, and summed PSS, which counts them once."""
    for kind in ("RSS", "PSS"):
        yield from (_line(*line) for line in cpu_lines(run, kind))


_READERS = {"loss": _loss, "step_time": _step_time, "gpu_memory": _gpu_memory, "cpu_memory": _cpu_memory}


def _line(name: str, x: np.ndarray, y: np.ndarray, most: int = MOST_POINTS) -> Line:
    import numpy as np

    x, y = np.asarray(x), np.asarray(y)
    known = np.isfinite(x) & np.isfinite(y)
    x, y = x[known], y[known]
    shown = thinned(y, most)
    return Line(name, _numbers(x[shown]), _numbers(y[shown]))


def thinned(y: np.ndarray, most: int) -> np.ndarray:
    """Positions of at most `most` samples: the first, the last and of each stretch the smallest and the largest."""
    import numpy as np

    if y.size <= most:
        return np.arange(y.size)
    stretches = np.array_split(np.arange(1, y.size - 1), (most - 2) // 2)
    ends = [place for one in stretches for place in (one[y[one].argmin()], one[y[one].argmax()])]
    return np.unique([0, *ends, y.size - 1])


def _numbers(values: np.ndarray) -> list[float]:
    """Rounded to four digits of the largest, whole ones without a point: the file is half as long."""
    import numpy as np

    largest = np.abs(values).max(initial=0)
    decimals = max(0, _DIGITS - 1 - int(np.floor(np.log10(largest)))) if largest else 0
    rounded = np.round(values, decimals)
    return (rounded.astype(int) if np.array_equal(rounded, np.rint(rounded)) else rounded).tolist()
