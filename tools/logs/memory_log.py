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
        peak_mib, mean_mib, min_mib: over all samples that were reported; None without any.
    """

    mib: np.ndarray
    time_s: np.ndarray | None = None
    gpu: np.ndarray | None = None

    @cached_property
    def _known(self) -> np.ndarray:
        known = self.mib == self.mib  # NaN is unequal to itself
        return self.mib if known.all() else self.mib[known]

    @property
    def peak_mib(self) -> float | None:
        return float(self._known.max()) if self._known.size else None

    @property
    def mean_mib(self) -> float | None:
        return float(self._known.sum() / self._known.size) if self._known.size else None

    @property
    def min_mib(self) -> float | None:
        return float(self._known.min()) if self._known.size else None
