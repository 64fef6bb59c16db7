"""Memory over time, of GPUs (nvidia_smi.py) or of processes (psrecord.py)."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from math import isnan
from statistics import fmean


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

    mib: list[float]
    time_s: list[float] = field(default_factory=list)
    gpu: list[float] = field(default_factory=list)

    @cached_property
    def reported(self) -> list[float]:
        return [mib for mib in self.mib if not isnan(mib)]

    @property
    def peak_mib(self) -> float | None:
        return max(self.reported, default=None)

    @property
    def mean_mib(self) -> float | None:
        return fmean(self.reported) if self.reported else None

    @property
    def min_mib(self) -> float | None:
        return min(self.reported, default=None)
