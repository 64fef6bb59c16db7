"""What all plots have in common: a figure that is written to a file, on a machine without a display."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def figure(output: Path, rows: int, columns: int, size_inches: tuple[float, float]) -> Iterator[tuple[Any, Any]]:
    """matplotlib's figure and axes, as pyplot.subplots gives them; written to `output` unless the block raises."""
    import matplotlib

    matplotlib.use("Agg")  # a login node has no display
    from matplotlib import pyplot

    drawn, axes = pyplot.subplots(rows, columns, figsize=size_inches, layout="constrained")
    try:
        yield drawn, axes
        drawn.savefig(output, dpi=120)
    finally:
        pyplot.close(drawn)


def label(axes: Any, x_label: str, y_label: str, if_empty: str) -> None:
    """Names, a grid and a legend; where nothing is drawn, why."""
    axes.set(xlabel=x_label, ylabel=y_label)
    axes.grid(alpha=0.3)
    if axes.has_data():
        axes.legend(fontsize="small")
    else:
        axes.text(0.5, 0.5, if_empty, ha="center", transform=axes.transAxes)
