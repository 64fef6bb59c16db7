"""Plots: a figure that is written to a file without a display, and names of runs in it."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tools.errors import InputError
from tools.logs.run import Run
from workshop.record.printable import printable

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
def drawing(output: Path, rows: int, columns: int, height_inches: float) -> Iterator[tuple[Any, Any]]:
    """matplotlib's figure and axes, as pyplot.subplots gives them; written to `output` unless the block raises.

    An SVG is the same text for the same runs, and light or dark as the reader's page is.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure  # not pyplot's: a login node has no display
    from matplotlib.text import Text

    with rc_context(_LOOK):
        drawn = Figure(figsize=(_WIDTH_INCHES, height_inches), layout="constrained")
        yield drawn, drawn.subplots(rows, columns)
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


def legend_below(drawn: Any, axes: Iterable[Any], columns: int) -> None:
    """One legend below the axes; a name on several axes appears once.

    It has one column where `columns` would be wider than the figure.
    """
    found = {
        textwrap.fill(name, _LEGEND_WIDTH): line
        for one in axes
        for line, name in zip(*one.get_legend_handles_labels(), strict=True)
    }
    if found:
        fitting = columns if max(map(len, found)) * columns < _LEGEND_WIDTH else 1
        place = {"loc": "outside lower center", "fontsize": "small"}
        drawn.legend(found.values(), found, ncols=fitting, **place)


def run_label(run: Run) -> str:
    """What a run is, and its folder's name, which no other run has."""
    parts = [run.configuration, run.fault if run.fault != "none" else None, run.model, run.precision]
    parts += [f"{run.world_size} GPUs" if run.several_gpus else None, "profiled" if run.profiled else None]
    return f"{', '.join(part.replace('_', ' ') for part in parts if part)} ({run.folder.name})"
