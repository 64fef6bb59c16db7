"""The constants of the planner's formulas: what they are (terms.csv), their values (constants.json), and their fit.

`python -m tools plan fit` writes constants.json anew from logs/reference, of each configuration the median of its
runs. It also holds how far the runs of a kind were from their predictions, each predicted without its own
configuration (2.5th and 97.5th percentile of measured per predicted): the intervals of new predictions.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

FILE = Path(__file__).with_name("constants.json")
# What is taken as a measurement's own error: repeats of one configuration differ by about that much.
NOISE = 0.08
_FAR = 2.0  # times the noise, from where on a difference counts with its size, not its square
_STEPS, _REFINING_STEPS = 25, 3  # from the starts; from the constants of all runs to those without one configuration
_LONGEST_STEP = 0.5  # in the logarithm
_DIFFERENCE = 1e-4


class Term(NamedTuple):
    """A constant of a formula, as terms.csv has it."""

    part: str  # of a step's time (timing.py); "" in the other formulas
    start: float  # what the fit begins with, and returns to where no run says otherwise
    spread: float  # how far the fit may leave it: standard deviation of the logarithm


Constants = dict[str, float]
Ratios = dict[str, tuple[float, float]]
CudaContext = dict[str, tuple[float, float, float]]


# By formula: reserved_mib, memory that PyTorch holds beside the allocated; step_time_s; cpu_mib, of the processes of a
# node, as psrecord sums up their RSS; other_s, seconds of a job beside its optimizer steps.
FORMULAS: dict[str, dict[str, Term]] = {}
with Path(__file__).with_name("terms.csv").open() as _file:
    for _row in csv.DictReader(_file):
        _term = Term(_row["part"], float(_row["start"]), float(_row["spread"]))
        FORMULAS.setdefault(_row["formula"], {})[_row["term"]] = _term


@dataclass(frozen=True)
class Fitted:
    """Attributes: constants, ratios: by formula; measured / predicted by kind; cuda_context: CUDA's and NCCL's own
    memory by group of configurations: least, median and largest (MiB); ways: Workload.way of completed runs."""

    cuda_context: CudaContext
    constants: dict[str, Constants]
    ratios: dict[str, Ratios]
    ways: tuple[str, ...] = ()


def save(fitted: Fitted) -> None:
    content = vars(fitted) | {"constants": {}}
    for formula, found in fitted.constants.items():
        content["constants"][formula] = {term: float(f"{value:.4g}") for term, value in found.items()}
    FILE.write_text(json.dumps(content, indent=1) + "\n")


@cache
def load() -> Fitted:
    return Fitted(**json.loads(FILE.read_text()))


def total(work: Mapping[str, Any], constants: Constants) -> Any:
    """The sum of a formula's work times its constants; what has no constant counts as it is."""
    return sum(amount * constants.get(name, 1) for name, amount in work.items())


def fit(
    formula: Callable[[Constants], Any],
    measured: Any,
    terms: Mapping[str, Term],
    first: Constants | None = None,
    too_low: float = 1,
) -> Constants:
    """The constants by name, by damped Gauss-Newton steps on the logarithms.

    A constant that no measurement says anything about keeps its start (a prior of log-normal shape), and a measurement
    that lies far outside, as of a host that was busy otherwise, counts less (Huber's weights).

    Args:
        formula: from constants to an array, one value per measurement.
        measured: the array that it should give.
        first: where to begin, near the end; default: the terms' starts.
        too_low: how often a value counts that the formula does not reach.
    """
    import numpy as np

    names = list(terms)
    origin = np.log([term.start for term in terms.values()])
    scale = np.array([term.spread for term in terms.values()])
    now = np.log([first[name] for name in names]) if first else origin

    def difference(logarithms: Any) -> Any:
        return np.log(formula(dict(zip(names, np.exp(logarithms), strict=True))) / measured) / NOISE

    for _ in range(_REFINING_STEPS if first else _STEPS):
        here = difference(now)
        weight = np.minimum(1, _FAR / np.maximum(np.abs(here), 1e-9)) * np.where(here < 0, too_low, 1)
        slopes = np.stack([(difference(now + one) - here) / _DIFFERENCE for one in np.eye(len(names)) * _DIFFERENCE], 1)
        matrix = slopes.T @ (slopes * weight[:, None]) + np.diag(1 / scale**2)
        move = -np.linalg.solve(matrix, slopes.T @ (here * weight) + (now - origin) / scale**2)
        now = now + np.clip(move, -_LONGEST_STEP, _LONGEST_STEP)
    return dict(zip(names, map(float, np.exp(now)), strict=True))
