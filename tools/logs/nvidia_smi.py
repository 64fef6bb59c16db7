"""GPU memory and utilisation over time from `nvidia-smi --query-gpu=... --format=csv -l 1`.

Participants log with other options than the launcher does, so the file may have units or not, a header or not, other
columns, several GPUs, values that the GPU does not report, and a last line cut off when the job ended.
Figures are over *all* samples: a mean over the samples above zero only is not the mean (erratum B4).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from tools.errors import LogError
from tools.logs import columns
from tools.logs.gpu_columns import column_names

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class GpuLog:
    """The samples of one or more GPU logs, with one entry per GPU and sample.

    Attributes:
        memory_used_mib: device memory in use (MiB), all processes; NaN where not reported.
        utilization_percent: share of the sample period in which a kernel ran (%); NaN where not reported.
        time_s: seconds since the log's first sample; only filled by `read(..., with_time=True)`.
        gpu: the GPU's index in the node; only filled by `read(..., with_time=True)`.
        peak_mib, mean_mib, min_mib, mean_utilization_percent: over all samples of all GPUs that were reported; None
            without any.
    """

    memory_used_mib: np.ndarray
    utilization_percent: np.ndarray
    time_s: np.ndarray | None = None
    gpu: np.ndarray | None = None

    @cached_property
    def _memory(self) -> np.ndarray:
        return _reported(self.memory_used_mib)

    @property
    def peak_mib(self) -> float | None:
        return float(self._memory.max()) if self._memory.size else None

    @property
    def min_mib(self) -> float | None:
        return float(self._memory.min()) if self._memory.size else None

    @property
    def mean_mib(self) -> float | None:
        return float(self._memory.sum()) / self._memory.size if self._memory.size else None

    @property
    def mean_utilization_percent(self) -> float | None:
        busy = _reported(self.utilization_percent)
        return float(busy.sum()) / busy.size if busy.size else None


def _reported(samples: np.ndarray) -> np.ndarray:
    return samples[samples == samples]  # NaN is the one value unequal to itself


def merge(logs: Sequence[GpuLog]) -> GpuLog:
    """Several nodes' logs as one: over all GPUs of the job."""
    import numpy as np

    if len(logs) == 1:
        return logs[0]
    memory, busy = [log.memory_used_mib for log in logs], [log.utilization_percent for log in logs]
    return GpuLog(np.concatenate(memory), np.concatenate(busy))


def read(path: Path, with_time: bool = False) -> GpuLog:
    """Parse one log; an empty file, or a header alone, gives no samples.

    Raises:
        LogError: the file is no such log, or its columns cannot be told apart.
    """
    data = columns.read_bytes(path)
    if "memory.used" in columns.first_line(data):
        try:  # a third of the time
            return _read(path, columns.without_units(data), with_time)
        except LogError:  # what is unusual is looked at as it was written
            pass
    return _read(path, data, with_time)


def _read(path: Path, data: bytes, with_time: bool) -> GpuLog:
    import numpy as np

    start = columns.first_line(data)
    names = column_names(path, data)
    if not names:
        return GpuLog(*(np.empty(0) for _ in range(4)))
    cells = columns.split(path, data, names, start if "memory.used" in start else "")
    memory = columns.numbers(path, data, cells, "memory.used")
    nothing = np.full(memory.size, np.nan)
    busy = columns.numbers(path, data, cells, "utilization.gpu") if "utilization.gpu" in names else nothing
    if not with_time:
        return GpuLog(memory, busy)
    gpu = columns.numbers(path, data, cells, "index") if "index" in names else np.zeros(memory.size)
    return GpuLog(memory, busy, _seconds(path, cells.get("timestamp"), memory.size), gpu)


def _seconds(path: Path, stamps: list[bytes] | None, samples: int) -> np.ndarray:
    import numpy as np

    if stamps is None:
        return np.arange(samples, dtype=float)
    iso = [stamp.strip().replace(b"/", b"-").decode("utf-8", "replace") for stamp in stamps]
    try:
        stamps_ms = np.array(iso, dtype="datetime64[ms]").astype("int64")
    except ValueError as error:
        raise LogError(path, None, str(error), "timestamps such as 2026/11/21 05:55:41.717") from error
    return (stamps_ms - stamps_ms[0]) / 1000 if samples else np.empty(0)
