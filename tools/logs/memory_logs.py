"""Memory over time: of GPUs from nvidia-smi's log, of a job's processes from psrecord's (memory_logger's is alike).

nvidia-smi's file may have units or not, values that the GPU does not report, and a last line cut off when the job
ended. Figures are over *all* samples: a mean over the samples above zero only is not the mean (erratum B4).

psrecord --include-children adds up the resident set sizes (RSS) of all child processes and so counts a page shared by
four of them four times; memory_logger's proportional set size (PSS) counts it once. Both are shown (erratum K13).
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from pathlib import Path
from statistics import fmean

from tools.errors import LogError, UnavailableError
from tools.logs.run import Run
from workshop.record import csv_log
from workshop.record.errors import read_plain

_TIMESTAMP = re.compile(r"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d(\.\d{1,6})?")
# What nvidia-smi prints for a quantity the GPU does not report, such as [N/A], ERR! or [GPU is lost].
_NOT_AVAILABLE = re.compile(r"\[.*\]|N/A|ERR!|[A-Z]\w* [\w ]+|")
_COLUMNS = ("timestamp", "index or uuid", "memory.used")
_PSRECORD = "4 numbers, the plain format: elapsed time (s), CPU (%), Real (MB), Virtual (MB); with --include-io 4 more"
_BLANK = b" \t\0\xef\xbb\xbf"  # a byte order mark, too


@dataclass(frozen=True)
class MemoryLog:
    """The samples of a log, in order.

    Attributes:
        mib: memory in use (MiB); NaN where not reported.
        time_s: seconds since the log's first sample.
        gpu: the GPU's index in the node, in a log without it the UUID; empty for processes.
        watts: power.draw; NaN where not reported, empty in a log without this column.
        start_s: the first sample, seconds since 2000 in the node's local time.
    """

    mib: list[float]
    time_s: list[float] = field(default_factory=list)
    gpu: list[int | str] = field(default_factory=list)
    watts: list[float] = field(default_factory=list)
    start_s: float = math.nan


def extremes(logs: Sequence[Sequence[float]], if_empty: str) -> dict[str, float]:
    """`peak_mib`, `mean_mib` and `min_mib` over all samples (MiB) that are known, each of the log with the most.

    A job can run out of one node's memory, not of all nodes' sum. {} without a log; UnavailableError, whose text is
    `if_empty`, for logs without a sample.
    """
    known = [mib for log in logs if (mib := [sample for sample in log if not math.isnan(sample)])]
    if logs and not known:
        raise UnavailableError(if_empty)
    ways = {"peak_mib": max, "mean_mib": fmean, "min_mib": min}
    return {name: max(map(way, known)) for name, way in ways.items()} if known else {}


def read_nvidia_smi(path: Path | str) -> MemoryLog:
    """Parse a log of `nvidia-smi --query-gpu=... --format=csv -l 1`; an empty file, or a header alone, has no samples.

    A message between the rows costs itself.

    Raises:
        LogError: the header or a line is not as the launcher's query gives it.
    """
    names, rows = csv_log.rows(path, _COLUMNS, messages=True)
    mib, watts = [], []
    for line, row in rows:
        for values, column, unit in ((mib, "memory.used", "MiB"), (watts, "power.draw", "W")):
            if (cell := row.get(column)) is not None:
                missing = _NOT_AVAILABLE.fullmatch(cell)
                named = f"{column} ({unit})"
                values.append(math.nan if missing else csv_log.number(path, line, cell, named, unit=unit))
    indexed = "index" in names
    gpu = [int(csv_log.number(path, line, row["index"], "index")) if indexed else row["uuid"] for line, row in rows]
    time_s = [seconds(path, line, row["timestamp"]) for line, row in rows]
    start_s = time_s[0] if time_s else math.nan
    return MemoryLog(mib, [round(second - start_s, 3) for second in time_s], gpu, watts, start_s)


def seconds(path: Path | str, line: int | None, stamp: str) -> float:
    """Seconds since 2000 of a time as nvidia-smi writes it. Raises LogError for another form."""
    try:
        if not _TIMESTAMP.fullmatch(stamp):
            raise ValueError("another form")
        return (datetime.fromisoformat(stamp.replace("/", "-")) - datetime(2000, 1, 1)).total_seconds()
    except ValueError as error:
        raise LogError(path, line, stamp, f"a timestamp such as 2026/11/21 05:55:41.717 ({error})") from error


def read_psrecord(path: Path | str) -> MemoryLog:
    """RSS or PSS from one log (psrecord's MB are 2^20 bytes); an empty file, or a header alone, gives no samples.

    A line below the samples that is none costs itself: one that is cut off, or what the crash of a node left (NULs).
    psrecord starts at 0 in each attempt: later attempts' times are shifted behind the earlier ones'.

    Raises:
        LogError: a line before the last, or the only one, does not hold four numbers, or as many as the first line.
    """
    memory_mib, time_s, before_s, elapsed_s = [], [], 0.0, 0.0
    numbered = enumerate((line.strip(_BLANK) for line in read_plain(path).splitlines()), 1)
    lines = [(number, line) for number, line in numbered if line and not line.startswith(b"#")]
    columns = max(4, len(lines[0][1].split())) if lines else 4
    for number, line in lines:
        try:
            now_s, _, resident_mib, *others = map(float, line.split())
            if 3 + len(others) != columns or not all(abs(cell) <= csv_log.LARGEST for cell in (now_s, resident_mib)):
                raise ValueError
        except ValueError:
            cut_off = len(line.split()) < 4 and set(line) <= set(b"0123456789. ")
            if number < lines[-1][0] or not (memory_mib or cut_off):
                raise LogError(path, number, line.decode("utf-8", "replace"), _PSRECORD) from None
            continue
        before_s += elapsed_s if now_s < elapsed_s else 0.0
        elapsed_s = now_s
        memory_mib.append(resident_mib)
        time_s.append(before_s + now_s)
    return MemoryLog(memory_mib, time_s)


@cache
def read_logs(run: Run, kind: str) -> dict[str, MemoryLog]:
    """A run's logs named `kind` (gpu_memory, cpu_memory: RSS, cpu_pss) by their node, "" in a run on one node."""
    suffix, read = (".csv", read_nvidia_smi) if kind == "gpu_memory" else (".txt", read_psrecord)
    names = [name for name in run.files if name.startswith(kind) and name.endswith(suffix)]
    return {name[len(kind) : -len(suffix)].lstrip("-"): read(f"{run.folder}/{name}") for name in names}
