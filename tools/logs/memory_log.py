"""Memory over time, of GPUs (nvidia_smi.py) or of processes (psrecord.py)."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isnan
from statistics import fmean


@dataclass(frozen=True)
class MemoryLog:
    """The samples of a log, in order.

    Attributes:
        mib: memory in use (MiB); NaN where not reported.
        time_s: seconds since the log's first sample; of GPUs only filled by `read(..., with_time=True)`.
        gpu: the GPU's index in the node; filled as `time_s` is, empty of processes.
    """

    mib: list[float]
    time_s: list[float] = field(default_factory=list)
    gpu: list[float] = field(default_factory=list)

    def figures(self) -> dict[str, float]:
        """`peak_mib`, `mean_mib` and `min_mib` over all samples that are known; {} without any."""
        known = [mib for mib in self.mib if not isnan(mib)]
        return {"peak_mib": max(known), "mean_mib": fmean(known), "min_mib": min(known)} if known else {}
