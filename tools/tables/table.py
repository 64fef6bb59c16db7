"""What the tables of an exercise ask for: TABLES in its tables.py, by their numbers.

Rows and columns are those of the documents. A function such as

    def strategy(row, column):
        return figure(column), STRATEGIES[row]

gives for the labels of a row and a column a figure and conditions on the runs it is from.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from inspect import signature
from pathlib import Path
from typing import Any

from tools.logs.figures import Figure
from tools.logs.run import Run, Where
from tools.tables.comparisons import FIGURES

Asked = tuple[Figure, Where]  # what a cell asks for: a figure, and conditions on the runs it is from

_BY_TITLE = {title.casefold(): one for one in FIGURES.values() for title in (one.title, one.also) if title}
_EMPTY = Run(Path())


@dataclass(frozen=True)
class Table:
    """What a table asks for; its rows and columns are those of the documents.

    Attributes:
        value: from the labels of a row and a column to what the cell there asks for; None for a text.
        where: conditions on all of its runs.
        exercises: whose runs fill it; by default its own exercise's.
        compares: sizes that its rows compare, also of tiny runs.
    """

    value: Callable[..., Asked | None]
    where: Where = field(default_factory=dict)
    exercises: Sequence[str] = ()
    compares: Sequence[str] = ()

    @property
    def label_columns(self) -> int:
        """How many columns label the rows."""
        return len(signature(self.value).parameters) - 1


def figure(title: str) -> Figure:
    """The figure with this title; `Tokens/s, std` is the standard deviation of `Tokens/s` over the repeats.

    Raises:
        KeyError: there is none.
    """
    found = _BY_TITLE[title.casefold().replace(", std", "")]
    return replace(found, std=True) if ", std" in title else found


def runs(**conditions: Any) -> Where:
    """Conditions on facts of runs (`Run.fact`).

    Raises:
        AttributeError: a run has no such fact.
    """
    for name in conditions:
        _EMPTY.fact(name)
    return conditions


def count(label: str) -> Where:
    """The runs on as many GPUs or nodes as a label says: `4 GPUs`, `1 node`."""
    number, unit = label.split()
    return runs(nodes=int(number)) if unit.startswith("node") else runs(world_size=int(number))


def zero(label: str) -> Where:
    """The runs with a configuration of DeepSpeed: `Stage 3 + offload, tuned`, `ZeRO-2`, `tuning/leaf`, `NAME.json`."""
    if stage := re.fullmatch(r"(?:Stage |ZeRO-)(\d)( \+ offload)?(?:, (\w+))?", label):
        return runs(config="_".join(filter(None, (f"zero{stage[1]}", stage[2] and "offload", stage[3]))))
    return runs(config=label.removeprefix("tuning/").removesuffix(".json"))


def batch(label: str) -> Where:
    """The runs with a micro-batch, an accumulation and a precision: `4 x 4, fp16`."""
    rows, accumulation, precision = re.fullmatch(r"(\d+) x (\d+), (\w+)", label).groups()
    return runs(batch_size=int(rows), grad_acc=int(accumulation), precision=precision)
