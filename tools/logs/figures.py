"""The figures of one run. Each is a line of figures.csv: where it is from, and how tables name and show it.

A new figure is one more line there, if one of the sources (tools/logs/sources.py) has it. The lines without a source
are of figures that tables make of several runs, or of the same figure in another unit (tools/tables/metrics.py).
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

# What measuring gives: the figure; or why there is none: a cell's word, or [what is wrong in which line of a file].
Outcome = float | bool | str | list[str]


@dataclass(frozen=True, kw_only=True)
class Metric:
    """How a figure is named, found and shown.

    Attributes:
        unit: printed after the figure where no label names it; "" for none.
        decimals: digits after the point.
        definition: one line: what it is and which file it is from.
        labels: of rows and columns that mean it, as the READMEs' tables have them.
        kind: of the figure; a bool is shown as yes or no, a word is what its source says in place of a figure.
        name: for labels and `runs --figures`.
        figure: of which field of RunFigures it is made; "" if it compares runs.
        sources: source and key, as "summary.json:train_loss"; the first that has it counts.
        missing: what a cell shows where no source has it.
        value: from the runs that a cell selects to the figure (tools/tables/metrics.py).
    """

    unit: str
    decimals: int
    definition: str
    labels: tuple[str, ...] = ()
    kind: type = float
    name: str = ""
    figure: str = ""
    sources: tuple[tuple[str, str], ...] = ()
    missing: str = ""
    value: Callable[..., float | bool] | None = None


def _metric(line: dict[str, str]) -> Metric:
    kind = {"yes or no": bool, "a word": str}.get(line["decimals"], float)
    return Metric(
        name=line["metric"],
        figure=line["figure"],
        unit=line["unit"],
        decimals=int(line["decimals"]) if kind is float else 0,
        kind=kind,
        sources=tuple(tuple(source.split(":", 1)) for source in line["sources"].split()),
        missing=line["missing"],
        labels=tuple(label for label in line["labels"].split("; ") if label),
        definition=line["definition"],
    )


with Path(__file__).with_name("figures.csv").open(encoding="utf-8", newline="") as _file:
    DEFINITIONS = [_metric(line) for line in csv.DictReader(_file, restval="")]
FIGURES = {one.figure: one for one in DEFINITIONS if one.figure}  # those of one run
