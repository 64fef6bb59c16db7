"""Step times, tokens and losses from a run's steps.csv (logs/README.md)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from run_folder import csv_log

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class StepLog:
    """One entry per optimizer step; columns of steps.csv.

    Attributes:
        step: global step, counted from 1 over the whole training.
        step_time_s: synchronised wall time of the step (s), without evaluation and saving.
        tokens: positions processed by all ranks, padding included.
        loss: training loss of the step.
        samples: training examples of the step; None in logs of before they were counted.
    """

    step: np.ndarray
    step_time_s: np.ndarray
    tokens: np.ndarray
    loss: np.ndarray
    samples: np.ndarray | None = None


def read(path: Path | str) -> StepLog:
    """Parse steps.csv; an empty file gives no steps.

    Raises:
        LogError: the header or a line is not as in the contract.
    """
    import numpy as np

    rows = list(csv_log.step_numbers(path, csv_log.step_rows(path)))
    names = rows[0] if rows else ("step", "step_time_s", "tokens", "loss")
    return StepLog(**{name: np.array([row[name] for row in rows]) for name in names})
