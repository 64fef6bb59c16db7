"""Step times, tokens and losses from a run's steps.csv (logs/README.md)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tools.errors import LogError
from tools.logs import textcsv

if TYPE_CHECKING:
    import numpy as np

COLUMNS = ["step", "step_time_s", "tokens", "real_tokens", "loss", "epoch"]


@dataclass(frozen=True)
class StepLog:
    """One entry per optimizer step.

    Attributes:
        step: global step, counted from 1 over the whole training.
        step_time_s: synchronised wall time of the step (s), without evaluation and saving.
        tokens, real_tokens: positions processed by all ranks; those that are not padding.
        loss: training loss of the step.
        samples: training examples of the step; None in logs of before they were counted.
    """

    step: np.ndarray
    step_time_s: np.ndarray
    tokens: np.ndarray
    real_tokens: np.ndarray
    loss: np.ndarray
    samples: np.ndarray | None = None


def read(path: Path) -> StepLog:
    """Parse steps.csv; an empty file gives no steps.

    Raises:
        LogError: the header or a line is not as in the contract.
    """
    import numpy as np

    data = textcsv.read_bytes(path)
    header = textcsv.first_line(data)
    if not header:
        return StepLog(*(np.empty(0) for _ in range(5)))
    names = textcsv.fields(header)
    if missing := [name for name in COLUMNS[:5] if name not in names]:
        raise LogError(path, 1, header, f"the header {','.join(COLUMNS)} (missing: {', '.join(missing)})")
    wanted = COLUMNS[:5] + ["samples"] * ("samples" in names)
    table = textcsv.read_columns(path, data, names, wanted, header)
    return StepLog(*(textcsv.to_numbers(path, data, table, name, names.index(name)) for name in wanted))
