"""Memory over time, of GPUs (nvidia_smi.py) or of processes (psrecord.py)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class MemoryLog:
    """The samples of a log, in order.

    Attributes:
        mib: memory in use (MiB); NaN where not reported.
        time_s: seconds since the log's first sample; only filled by `read(..., with_time=True)`.
        gpu: the GPU's index in the node; only of GPUs, and only filled by `read(..., with_time=True)`.
        reported: the samples that are known.
        peak_mib, mean_mib, min_mib: over all of them; None without any.
    """

    mib: np.ndarray
    time_s: np.ndarray | None = None
    gpu: np.ndarray | None = None

    @cached_property
    def reported(self) -> np.ndarray:
        total = self.mib.sum()
        # NaN is unequal to itself, and so is a sum with one in it.
        return self.mib if total == total else self.mib[self.mib == self.mib]

    @property
    def peak_mib(self) -> float | None:
        return float(self.reported.max()) if self.reported.size else None

    @property
    def mean_mib(self) -> float | None:
        return float(self.reported.sum() / self.reported.size) if self.reported.size else None

    @property
    def min_mib(self) -> float | None:
        return float(self.reported.min()) if self.reported.size else None
