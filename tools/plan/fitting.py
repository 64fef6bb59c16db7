"""Constants of a formula from what was measured: damped Gauss-Newton steps on the logarithms.

A constant that no measurement says anything about keeps its start (a prior of log-normal shape), and a measurement that
lies far outside, as of a host that was busy otherwise, counts less (Huber's weights).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# What is taken as a measurement's own error: repeats of one configuration differ by about that much.
NOISE = 0.08
_FAR = 2.0  # times the noise, from where on a difference counts with its size, not its square
_STEPS = 25
_STEP = 0.5  # the longest, in the logarithm
_DIFFERENCE = 1e-4


@dataclass(frozen=True)
class Term:
    """A constant of a formula.

    Attributes:
        part: what it is a part of.
        unit: of the constant; "x" where the work is already in the formula's unit, at the data sheet's rate.
        start: what the fit begins with, and returns to where no run says otherwise.
        text: the work that it is multiplied with.
        spread: how far the fit may leave `start`: standard deviation of the logarithm.
    """

    part: str
    unit: str
    start: float
    text: str
    spread: float = 0.7


Terms = Mapping[str, Term]
Constants = dict[str, float]


def fit(
    formula: Callable[[Constants], Any],
    measured: Any,
    terms: Terms,
    first: Constants | None = None,
    steps: int = _STEPS,
) -> Constants:
    """The constants by name.

    Args:
        formula: from constants to an array, one value per measurement.
        measured: the array that it should give.
        first: where to begin, as near the end as possible; default: the terms' starts.
    """
    import numpy as np

    names = list(terms)
    origin = np.log([term.start for term in terms.values()])
    scale = np.array([term.spread for term in terms.values()])
    now = np.log([first[name] for name in names]) if first else origin

    def difference(logarithms: Any) -> Any:
        return np.log(formula(dict(zip(names, np.exp(logarithms), strict=True))) / measured) / NOISE

    for _ in range(steps):
        here = difference(now)
        weight = np.minimum(1, _FAR / np.maximum(np.abs(here), 1e-9))
        slopes = np.stack([(difference(now + one) - here) / _DIFFERENCE for one in np.eye(len(names)) * _DIFFERENCE], 1)
        matrix = slopes.T @ (slopes * weight[:, None]) + np.diag(1 / scale**2)
        move = -np.linalg.solve(matrix, slopes.T @ (here * weight) + (now - origin) / scale**2)
        now = now + np.clip(move, -_STEP, _STEP)
    return dict(zip(names, map(float, np.exp(now)), strict=True))


def first_choice(options: Sequence[tuple[int, float, float]]) -> int:
    """Which one to choose: of the lowest class the fastest; of those that are as fast, the one with least memory.

    Times that differ by less than a measurement's own error cannot be told apart.

    Args:
        options: class, predicted time (s), predicted memory (MiB); at least one.
    """
    lowest, fastest_s, _ = min(options)
    near = [
        (memory_mib, place)
        for place, (kind, time_s, memory_mib) in enumerate(options)
        if kind == lowest and time_s <= fastest_s * (1 + NOISE)
    ]
    return min(near)[1]
