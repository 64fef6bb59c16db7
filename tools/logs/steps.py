"""Step times, tokens and losses from a run's steps.csv (logs/README.md)."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

from evidence.schema import STEPS_VERSIONS
from tools.errors import LogError
from tools.logs import columns

if TYPE_CHECKING:
    import numpy as np

_REQUIRED = STEPS_VERSIONS[1][:5]


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

    data = columns.read_bytes(path)
    header = columns.first_line(data)
    if not header:
        return StepLog(*(np.empty(0) for _ in range(4)))
    names = columns.fields(header)
    if missing := [name for name in _REQUIRED if name not in names]:
        expected = f"the header {','.join(STEPS_VERSIONS[1])} (missing: {', '.join(missing)})"
        raise LogError(path, 1, header, expected)
    log = columns.Columns(path, data, names, header)
    return StepLog(**{field.name: log.numbers(field.name) for field in fields(StepLog) if field.name in names})
