"""GPU memory and utilisation over time from `nvidia-smi --query-gpu=... --format=csv -l 1`.

Participants log with other options than the launcher does, so the file may have units or not, a header or not, other
columns, several GPUs, values that the GPU does not report, and a last line cut off when the job ended.
Figures are over *all* samples: a mean over the samples above zero only is not the mean (erratum B4).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tools import batch, textcsv
from tools.errors import LogError, read_or_error

if TYPE_CHECKING:
    import numpy as np

# The launcher's own query (logs/README.md).
CONTRACT = ["timestamp", "index", "name", "memory.used", "memory.total", "utilization.gpu"]
_TABLES_NEED = ("memory.used", "utilization.gpu")
_TIMESTAMP = re.compile(r"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d")
_NUMBER = re.compile(r"\d+(\.\d+)?|\[.*\]|N/A")


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
    names = _header_names(textcsv.fields(header.decode("utf-8", "replace")))
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


def column_names(path: Path, data: bytes) -> list[str]:
    """Names of the file's columns: from its header, else from the shape of its values; [] for an empty file."""
    start = textcsv.first_line(data)
    if not start:
        return []
    values = textcsv.fields(start)
    if names := _header_names(values):
        if "memory.used" not in names:
            raise LogError(path, 1, start, "a column memory.used in the header")
        return names
    return _guess_names(path, data, values)


def _header_names(values: list[str]) -> list[str]:
    """Names of the columns if the values are a header's, else []."""
    names = [value.split("[")[0].strip() for value in values]
    is_header = any(
        "." in value and value[0].isalpha() and " " not in name for value, name in zip(values, names, strict=True)
    )
    return names if is_header else []


def _guess_names(path: Path, data: bytes, values: list[str]) -> list[str]:
    """Names for a file without header, where the values leave no doubt."""
    contract_shape = (
        len(values) in (5, 6)
        and _TIMESTAMP.match(values[0])
        and values[1].isdigit()
        and not _NUMBER.fullmatch(values[2])
        and all(_NUMBER.match(value) for value in values[3:])
        and all("%" not in value for value in values[3:5])
    )
    if contract_shape:
        return CONTRACT[: len(values)]
    names = [f"column {number}" for number in range(1, len(values) + 1)]
    names = ["timestamp" if _TIMESTAMP.match(value) else name for name, value in zip(names, values, strict=True)]
    memory = [i for i, value in enumerate(values) if value.endswith("MiB")]
    percent = [i for i, value in enumerate(values) if value.endswith("%")]
    if not memory or len(memory) > 2:
        expected = "a header with memory.used, or units (MiB), or the columns " + ", ".join(CONTRACT)
        raise LogError(path, 1, ", ".join(values), expected)
    samples = textcsv.read_columns(path, data, names, [names[i] for i in memory + percent], "")
    columns = {i: textcsv.to_numbers(path, data, samples, names[i], i) for i in memory + percent}
    names[_used_of(path, columns, memory)] = "memory.used"
    # nvidia-smi reports utilization.gpu and utilization.memory; memory is never busy while no kernel runs.
    if len(percent) == 1 or (len(percent) == 2 and bool((columns[percent[0]] >= columns[percent[1]]).all())):
        names[percent[0]] = "utilization.gpu"
    return names


def _used_of(path: Path, columns: dict[int, np.ndarray], memory: list[int]) -> int:
    """Which of one or two MiB columns is memory.used.

    The other one is memory.total (never smaller, one value per GPU, so at most as many values as a node has GPUs) or
    memory.free (the sum is constant). Used and free are told apart by the first sample: the logger starts before the
    training, when less is used than free.
    """
    if len(memory) == 1:
        return memory[0]
    first, second = (columns[i] for i in memory)
    sums = first + second
    if sums.max() - sums.min() <= 2 and first[0] != second[0]:  # each of the two is rounded to whole MiB
        return memory[0] if first[0] < second[0] else memory[1]
    for used, total, position in ((first, second, memory[0]), (second, first, memory[1])):
        if bool((used <= total).all()) and bool((total == total[0]).all()):
            return position
    raise LogError(path, 1, "two columns in MiB", "a header: memory.used cannot be told from the values")
