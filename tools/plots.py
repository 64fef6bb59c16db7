"""A run's curves, as few points as a chart can show, and pictures that are written without a display.

Every point is a sample, nothing is averaged.
"""

import io
import math
import textwrap
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

from tools.errors import InputError, LogError
from tools.logs.memory_logs import read_logs
from tools.logs.run import Run
from workshop.record.printable import printable

MOST_POINTS = 200  # of a line: a page of 1,000 runs stays small
# What a loss can be drawn over: the axis' label, and its values from the steps.
OVER: dict[str, tuple[str, Callable]] = {
    "step": ("step", lambda steps: steps.step),
    "examples": ("training examples", lambda steps: None if steps.samples is None else [*accumulate(steps.samples)]),
    "time": ("time in steps (s)", lambda steps: [*accumulate(steps.step_time_s)]),
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


@dataclass(frozen=True)
class Chart:
    """Attributes: key: names it in links and in scripts; problem: why a log cannot be read, "" if it can."""

    key: str
    title: str
    x_label: str
    y_label: str
    lines: list[Line]
    problem: str


def charts(run: Run, over: str = "step") -> list[Chart]:
    """The run's charts that have something to draw, or a log that cannot be read; `over` is a key of OVER."""
    drawn = []
    for key, title, x_label, y_label, source in _CHARTS:
        lines, problem = [], ""
        try:
            curves = _over_steps(run, source, over) if isinstance(source, str) else _memory(run, source)
            lines = [line for line in curves if line.x]
        except LogError as error:
            problem = str(error)
        if lines or problem:
            drawn.append(Chart(key, title, x_label or OVER[over][0], y_label, lines, problem))
    return drawn


def _over_steps(run: Run, column: str, over: str) -> Iterator[Line]:
    """The curve, and a vertical line at each step from which the run was resumed."""
    steps = run.steps
    places = OVER[over][1](steps) if steps else None
    if places is None:
        return
    name = column.removesuffix("_s").replace("_", " ") if run.resumptions else ""
    curve = _line(name, places, getattr(steps, column))
    yield curve
    if curve.y:
        for step, text in run.resumptions:
            place = places[min(bisect_left(steps.step, step), len(steps.step) - 1)]
            yield Line(text, [place, place], [min(curve.y), max(curve.y)])


def _memory(run: Run, kinds: Sequence[str]) -> Iterator[Line]:
    """A line per node, and per GPU: "node1 GPU 0", "node1 RSS"."""
    for kind in kinds:
        for node, log in read_logs(run, _MEMORY_LOGS[kind]).items():
            for gpu in sorted(set(log.gpu)) or [None]:
                here = [place for place in range(len(log.mib)) if gpu is None or log.gpu[place] == gpu]
                name = f"{node} {kind}{'' if gpu is None else f' {gpu}'}".strip()
                yield _line(name, [log.time_s[place] for place in here], [log.mib[place] for place in here])


def _line(name: str, x: Sequence[float], y: Sequence[float]) -> Line:
    """At most MOST_POINTS, rounded: the first, the last and of each stretch the smallest and the largest."""
    points = [point for point in zip(x, y, strict=True) if math.isfinite(point[0]) and math.isfinite(point[1])]
    if len(points) > MOST_POINTS:
        last = len(points) - 1
        length = math.ceil((last - 1) / ((MOST_POINTS - 2) // 2))
        kept = {0, last}
        for start in range(1, last, length):
            stretch = range(start, min(start + length, last))
            kept |= {end(stretch, key=lambda place: points[place][1]) for end in (min, max)}
        points = [points[place] for place in sorted(kept)]
    return Line(name, *([float(f"{point[axis]:.6g}") for point in points] for axis in (0, 1)))


# ---- pictures ----

_WIDTH_INCHES = 7.3  # 700 pixels at 96 per inch: text of 10 points is 13 pixels high there
_LEGEND_WIDTH = 80  # characters
_INK = "#1f2328"
_LOOK = {
    **{"svg.hashsalt": "shardlab", "svg.fonttype": "none", "legend.frameon": False},
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), _INK),
}
_LIGHT_OR_DARK = """<style>
  svg { color: black; background: white }
  @media (prefers-color-scheme: dark) { svg { color: #e6edf3; background: #0d1117 } }
 </style>
 <defs>"""


def check_output(output: Path) -> None:
    """Raises InputError for a file that no plot can be written to, before anything is computed for it."""
    if output.suffix not in (".png", ".svg", ".pdf") or not output.parent.is_dir():
        raise InputError(f"--output {output}: expected a name that ends in .png, .svg or .pdf, in a folder that exists")


@contextmanager
def drawing(output: Path, rows: int, height_inches: float) -> Iterator[tuple[Any, Any]]:
    """matplotlib's figure and axes, as pyplot.subplots gives them; written to `output` unless the block raises.

    An SVG is the same text for the same runs, and light or dark as the reader's page is.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure  # not pyplot's: a login node has no display
    from matplotlib.text import Text

    with rc_context(_LOOK):
        drawn = Figure(figsize=(_WIDTH_INCHES, height_inches), layout="constrained")
        yield drawn, drawn.subplots(rows)
        for text in drawn.findobj(Text):  # a name with dollar signs is no formula; a tick such as 10^3 is one
            text.set_parse_math(text.get_text().startswith(r"$\mathdefault"))
            text.set_text(printable(text.get_text()))
        if output.suffix == ".svg":
            written = io.StringIO()
            drawn.savefig(written, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
            output.write_text(written.getvalue().replace("<defs>", _LIGHT_OR_DARK, 1).replace(_INK, "currentColor"))
        else:
            drawn.savefig(output, dpi=120)


def label(axes: Any, x_label: str, y_label: str, if_empty: str) -> None:
    """Label the axes and draw a grid; empty axes say why."""
    axes.set(xlabel=x_label, ylabel=y_label)
    axes.grid(alpha=0.3)
    if not axes.has_data():
        axes.text(0.5, 0.5, if_empty, ha="center", transform=axes.transAxes)


def legend_below(drawn: Any, axes: Iterable[Any]) -> None:
    """One legend below the axes, in two columns if they fit; a name on several axes appears once."""
    pairs = [pair for part in axes for pair in zip(*part.get_legend_handles_labels(), strict=True)]
    names = {textwrap.fill(name, _LEGEND_WIDTH): line for line, name in pairs}
    if names:
        columns = 2 if 2 * max(map(len, names)) < _LEGEND_WIDTH else 1
        drawn.legend(names.values(), names, ncols=columns, loc="outside lower center", fontsize="small")


def run_label(run: Run) -> str:
    """What a run is, and its folder's name, which no other run has."""
    parts = [run.configuration, run.fault if run.fault != "none" else None, run.model, run.precision]
    parts += [f"{run.world_size} GPUs" if run.several_gpus else None, "profiled" if run.profiled else None]
    return f"{', '.join(part.replace('_', ' ') for part in parts if part)} ({run.folder.name})"
