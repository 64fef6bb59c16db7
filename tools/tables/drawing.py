"""What all plots have in common: a figure that is written to a file, on a machine without a display."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from evidence.printable import printable
from tools.errors import InputError


def check_output(output: Path) -> None:
    """Raises InputError for a file that no plot can be written to, before anything is computed for it."""
    if output.suffix not in (".png", ".svg", ".pdf"):
        raise InputError(f"--output {output}: the name must end in .png, .svg or .pdf")
    if not output.parent.is_dir():
        raise InputError(f"--output {output}: there is no folder {output.parent}")


@contextmanager
def figure(output: Path, rows: int, columns: int, size_inches: tuple[float, float]) -> Iterator[tuple[Any, Any]]:
    """matplotlib's figure and axes, as pyplot.subplots gives them; written to `output` unless the block raises."""
    import matplotlib

    matplotlib.use("Agg")  # a login node has no display
    from matplotlib import pyplot

    drawn, axes = pyplot.subplots(rows, columns, figsize=size_inches, layout="constrained")
    try:
        yield drawn, axes
        for text in drawn.findobj(pyplot.Text):  # a name with dollar signs is no formula; a tick such as 10^3 is one
            text.set_parse_math(text.get_text().startswith(r"$\mathdefault"))
            text.set_text(printable(text.get_text()))
        drawn.savefig(output, dpi=120)
    finally:
        pyplot.close(drawn)


def label(axes: Any, x_label: str, y_label: str, if_empty: str) -> None:
    """Names and a grid; where nothing is drawn, why."""
    axes.set(xlabel=x_label, ylabel=y_label)
    axes.grid(alpha=0.3)
    if not axes.has_data():
        axes.text(0.5, 0.5, if_empty, ha="center", transform=axes.transAxes)


def legend_below(drawn: Any, axes: Iterable[Any], columns: int) -> None:
    """One legend for the figure, under its axes, where it covers nothing; a name on several axes stands once.

    It has one column where `columns` would be wider than the figure.
    """
    found = {name: line for one in axes for line, name in zip(*one.get_legend_handles_labels(), strict=True)}
    look = {"loc": "outside lower center", "fontsize": "small"}
    if not found:
        return
    legend = drawn.legend(found.values(), found, ncols=columns, **look)
    if legend.get_window_extent().width > drawn.bbox.width:
        legend.remove()
        drawn.legend(found.values(), found, **look)


def legend_above(axes: Any) -> None:
    """The axes' own legend over their top, where it covers nothing; a title needs a pad."""
    lines, _ = axes.get_legend_handles_labels()
    if lines:
        axes.legend(fontsize="small", loc="lower center", bbox_to_anchor=(0.5, 1), ncols=3, frameon=False)
