"""GPU memory over time from `nvidia-smi --query-gpu=... --format=csv -l 1`.

Participants log with other options than the launcher does, so the file may have units or not, a header or not, other
columns, several GPUs, values that the GPU does not report, and a last line cut off when the job ended. Which column is
memory.used must be certain: by the header or by the units.
Figures are over *all* samples: a mean over the samples above zero only is not the mean (erratum B4).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from run_folder import csv_log
from tools.errors import LogError
from tools.logs.memory_log import MemoryLog

_TIMESTAMP = re.compile(r"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d(\.\d{1,6})?")
# What nvidia-smi prints for a quantity the GPU does not report.
_NOT_AVAILABLE = ("", "[N/A]", "N/A", "[Not Supported]", "[Unknown Error]", "[GPU requires reset]")


def read(path: Path | str, with_time: bool = False) -> MemoryLog:
    """Parse one log; an empty file, or a header alone, gives no samples.

    Raises:
        LogError: the file is no such log, or its columns cannot be told apart.
    """
    lines = csv_log.read_lines(path)
    first = next((line.strip() for line in lines if line.strip()), "")
    names = header_names(path, first) or (_names_by_values(path, lines, first) if first else [])
    rows = list(csv_log.rows(path, lines, names, first if "memory.used" in first else ""))
    memory = [memory_mib(path, number, row["memory.used"]) for number, row in rows]
    if not with_time:
        return MemoryLog(memory)
    gpu = [csv_log.number(path, number, row["index"], "index") if "index" in row else 0.0 for number, row in rows]
    if "timestamp" not in names:  # the launcher's logger writes a sample a second
        return MemoryLog(memory, [float(second) for second in range(len(rows))], gpu)
    time_s = [_seconds(path, number, row["timestamp"]) for number, row in rows]
    return MemoryLog(memory, [round(one - time_s[0], 3) for one in time_s], gpu)


def memory_mib(path: Path | str, line: int, cell: str) -> float:
    """A cell of memory.used; NaN where the GPU does not report it. Raises LogError for another unit than MiB."""
    if cell in _NOT_AVAILABLE:
        return float("nan")
    return csv_log.number(path, line, cell, "memory.used (MiB)", unit="MiB")


def header_names(path: Path | str, line: str) -> list[str]:
    """Names of the columns if the line is a header, else []. Raises LogError for one without memory.used."""
    values = csv_log.cells(line)
    names = [value.split("[")[0].strip() for value in values]
    pairs = zip(values, names, strict=True)
    if not any("." in value and value[0].isalpha() and " " not in name for value, name in pairs):
        return []
    if "memory.used" not in names:
        raise LogError(path, 1, line, "a column memory.used in the header")
    return names


def _seconds(path: Path | str, line: int, stamp: str) -> float:
    try:
        if not _TIMESTAMP.fullmatch(stamp):
            raise ValueError("another form")
        return (datetime.fromisoformat(stamp.replace("/", "-")) - datetime(2000, 1, 1)).total_seconds()
    except ValueError as error:
        raise LogError(path, line, stamp, f"a timestamp such as 2026/11/21 05:55:41.717 ({error})") from error


def _names_by_values(path: Path | str, lines: Sequence[str], first: str) -> list[str]:
    """Names for a file without header, where the units leave no doubt."""
    values = csv_log.cells(first)
    names = [f"column {place}" for place in range(len(values))]
    memory = [place for place, value in enumerate(values) if value.endswith("MiB")]
    if not memory or len(memory) > 2:
        raise LogError(path, 1, ", ".join(values), "a header with memory.used, or units (MiB)")
    rows = [(number, list(row.values())) for number, row in csv_log.rows(path, lines, names, "")]
    samples = [[memory_mib(path, number, row[place]) for number, row in rows] for place in memory]
    names[memory[_used_of(path, *samples)] if len(memory) == 2 else memory[0]] = "memory.used"
    names = ["timestamp" if _TIMESTAMP.match(value) else name for name, value in zip(names, values, strict=True)]
    if len(values) in (5, 6) and names[0] == "timestamp" and values[1].isdigit():
        names[1] = "index"  # as in the launcher's own query
    return names


def _used_of(path: Path | str, first: Sequence[float], second: Sequence[float]) -> int:
    """Which of two MiB columns is memory.used: 0 or 1.

    The other one is memory.total (never smaller, one value) or memory.free (the sum is constant). Used and free are
    told apart by the first sample: the logger starts before the training, when less is used than free.
    """
    sums = [one + other for one, other in zip(first, second, strict=True)]
    if max(sums) - min(sums) <= 2 and first[0] != second[0]:  # each of the two is rounded to whole MiB
        return int(first[0] > second[0])
    for place, (used, total) in enumerate(((first, second), (second, first))):
        if all(one <= other == total[0] for one, other in zip(used, total, strict=True)):
            return place
    raise LogError(path, 1, "two columns in MiB", "a header: memory.used cannot be told from the values")
