"""GPU memory and utilisation over time from `nvidia-smi --query-gpu=... --format=csv -l 1`.

Participants log with other options than the launcher does, so the file may have units or not, a header or not, other
columns, several GPUs, values that the GPU does not report, and a last line cut off when the job ended.
Figures are over *all* samples: a mean over the samples above zero only is not the mean (erratum B4).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tools.errors import LogError, read_or_error
from tools.logs import batch, textcsv
from tools.logs.gpu_columns import column_names, header_names

if TYPE_CHECKING:
    import numpy as np

_TABLES_NEED = ("memory.used", "utilization.gpu")


@dataclass(frozen=True)
class GpuFigures:
    """What the tables need of one or more GPU logs.

    Attributes:
        samples: number of values of memory.used, over all GPUs; those that are not reported do not count.
        sum_mib, peak_mib, min_mib: their sum, the largest and the smallest (MiB); None without samples.
        utilization_samples, utilization_sum_percent: the same of utilization.gpu (%).
    """

    samples: int
    sum_mib: float
    peak_mib: float | None
    min_mib: float | None
    utilization_samples: int
    utilization_sum_percent: float

    @property
    def mean_mib(self) -> float | None:
        """Mean over all samples of all GPUs (MiB)."""
        return self.sum_mib / self.samples if self.samples else None

    @property
    def mean_utilization_percent(self) -> float | None:
        """Mean over all samples of all GPUs, zeros included (%)."""
        return self.utilization_sum_percent / self.utilization_samples if self.utilization_samples else None


@dataclass(frozen=True)
class GpuLog(GpuFigures):
    """One GPU log: its figures, and its samples with one entry per GPU and sample.

    Attributes:
        memory_used_mib: device memory in use (MiB), all processes; NaN where not reported.
        utilization_percent: share of the sample period in which a kernel ran (%); NaN where not reported.
        time_s: seconds since the log's first sample; only filled by `read(..., with_time=True)`.
        gpu: the GPU's index in the node; only filled by `read(..., with_time=True)`.
    """

    memory_used_mib: np.ndarray
    utilization_percent: np.ndarray
    time_s: np.ndarray | None = None
    gpu: np.ndarray | None = None


def _figures(memory_used_mib: np.ndarray, utilization_percent: np.ndarray) -> GpuFigures:
    memory, busy = _reported(memory_used_mib), _reported(utilization_percent)
    extremes = (float(memory.max()), float(memory.min())) if memory.size else (None, None)
    return GpuFigures(memory.size, float(memory.sum()), *extremes, busy.size, float(busy.sum()))


def _reported(samples: np.ndarray) -> np.ndarray:
    return samples[samples == samples]  # NaN is the one value unequal to itself


def merge(logs: Sequence[GpuFigures]) -> GpuFigures:
    """The figures of several nodes' logs as one: over all GPUs of the job."""
    if len(logs) == 1:
        return logs[0]
    return GpuFigures(
        sum(log.samples for log in logs),
        sum(log.sum_mib for log in logs),
        max((log.peak_mib for log in logs if log.peak_mib is not None), default=None),
        min((log.min_mib for log in logs if log.min_mib is not None), default=None),
        sum(log.utilization_samples for log in logs),
        sum(log.utilization_sum_percent for log in logs),
    )


def figures(paths: list[str]) -> list[GpuFigures | LogError]:
    """Each log's figures, or what is wrong with it; many logs at once take a fraction of the time of one by one."""
    parsed = textcsv.many_columns(map(batch.read_file, paths), _wanted)
    return [
        read_or_error(_alone, Path(path)) if columns is None else _figures(*_both(columns))
        for path, columns in zip(paths, parsed, strict=True)
    ]


def _alone(path: Path) -> GpuFigures:
    log = read(path)
    return _figures(log.memory_used_mib, log.utilization_percent)


def _wanted(header: bytes) -> tuple[list[str], list[str]] | None:
    names = header_names(textcsv.fields(header.decode("utf-8", "replace")))
    return (names, [name for name in _TABLES_NEED if name in names]) if "memory.used" in names else None


def _both(columns: dict[str, np.ndarray]) -> list[np.ndarray]:
    import numpy as np

    memory = columns["memory.used"]
    return [memory, columns.get("utilization.gpu", np.full(memory.size, np.nan))]


def read(path: Path, with_time: bool = False) -> GpuLog:
    """Parse one log; an empty file, or a header alone, gives no samples.

    Raises:
        LogError: the file is no such log, or its columns cannot be told apart.
    """
    import numpy as np

    data = textcsv.read_bytes(path)
    start = textcsv.first_line(data)
    names = column_names(path, data)
    if not names:
        return _log(np.empty(0), np.empty(0), np.empty(0), np.empty(0))
    wanted = [name for name in _TABLES_NEED if name in names]
    if with_time:
        wanted += [name for name in ("timestamp", "index") if name in names]
    table = textcsv.read_columns(path, data, names, wanted, start if "memory.used" in start else "")

    def numbers(name: str) -> np.ndarray:
        return textcsv.to_numbers(path, data, table, name, names.index(name))

    memory, utilization = _both({name: numbers(name) for name in _TABLES_NEED if name in names})
    if not with_time:
        return _log(memory, utilization)
    gpu = numbers("index") if "index" in names else np.zeros(memory.size)
    return _log(memory, utilization, _seconds(path, table, memory.size), gpu)


def _log(memory: np.ndarray, utilization: np.ndarray, *rest: np.ndarray) -> GpuLog:
    return GpuLog(*vars(_figures(memory, utilization)).values(), memory, utilization, *rest)


def _seconds(path: Path, table, samples: int) -> np.ndarray:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    if "timestamp" not in table.column_names:
        return np.arange(samples, dtype=float)
    iso = pc.replace_substring(pc.utf8_trim_whitespace(table.column("timestamp")), "/", "-")
    try:
        stamps_ms = np.from_dlpack(pc.cast(pc.cast(iso, pa.timestamp("ms")), pa.int64()).combine_chunks())
    except pa.ArrowInvalid as error:
        raise LogError(path, None, str(error), "timestamps such as 2026/11/21 05:55:41.717") from error
    return (stamps_ms - stamps_ms[0]) / 1000 if samples else np.empty(0)
