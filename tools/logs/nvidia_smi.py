"""GPU memory over time from `nvidia-smi --query-gpu=... --format=csv -l 1`.

Participants log with other options than the launcher does, so the file may have units or not, a header or not, other
columns, several GPUs, values that the GPU does not report, and a last line cut off when the job ended.
Figures are over *all* samples: a mean over the samples above zero only is not the mean (erratum B4).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tools.errors import LogError
from tools.logs import columns
from tools.logs.gpu_columns import column_names
from tools.logs.memory_log import MemoryLog

if TYPE_CHECKING:
    import numpy as np


def read(path: Path | str, with_time: bool = False) -> MemoryLog:
    """Parse one log; an empty file, or a header alone, gives no samples.

    Raises:
        LogError: the file is no such log, or its columns cannot be told apart.
    """
    import numpy as np

    data = columns.read_bytes(path)
    start = columns.first_line(data)
    names = column_names(path, data)
    if not names:
        return MemoryLog(*(np.empty(0) for _ in range(3)))
    log = columns.Columns(path, data, names, start if "memory.used" in start else "")
    memory = log.numbers("memory.used")
    if not with_time:
        return MemoryLog(memory)
    gpu = log.numbers("index") if "index" in names else np.zeros(memory.size)
    stamps = log.cells("timestamp") if "timestamp" in names else None
    return MemoryLog(memory, _seconds(path, stamps, memory.size), gpu)


def _seconds(path: Path | str, stamps: list[bytes] | None, samples: int) -> np.ndarray:
    import numpy as np

    if stamps is None:
        return np.arange(samples, dtype=float)
    iso = [stamp.strip().replace(b"/", b"-").decode("utf-8", "replace") for stamp in stamps]
    try:
        stamps_ms = np.array(iso, dtype="datetime64[ms]").astype("int64")
    except ValueError as error:
        raise LogError(path, None, str(error), "timestamps such as 2026/11/21 05:55:41.717") from error
    return (stamps_ms - stamps_ms[0]) / 1000 if samples else np.empty(0)
