"""Memory over time: of GPUs from nvidia-smi's log, of a job's processes from psrecord's (memory_logger's is alike).

Participants log with other options than the launcher does, so nvidia-smi's file may have units or not, a header or not,
other columns, several GPUs, values that the GPU does not report, and a last line cut off when the job ended. Which
column is memory.used must be certain: by the header or by the units. Figures are over *all* samples: a mean over the
samples above zero only is not the mean (erratum B4).

psrecord --include-children adds up the resident set sizes (RSS) of all child processes and so counts a page shared by
four of them four times; memory_logger's proportional set size (PSS) counts it once. Both are shown (erratum K13).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from statistics import fmean

from tools.errors import LogError, UnavailableError
from tools.logs.run import Run
from workshop.run_folder import csv_log
from workshop.run_folder.safe_open import read_plain

_TIMESTAMP = re.compile(r"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d(\.\d{1,6})?")
# What nvidia-smi prints for a quantity the GPU does not report, such as [N/A], ERR! or [GPU is lost].
_NOT_AVAILABLE = re.compile(r"\[.*\]|N/A|ERR!|[A-Z]\w* [\w ]+|")
_NAMES_OF_GPU = ("index", "uuid", "pci.bus_id", "serial")  # columns; the first that a log has
_PSRECORD = "4 numbers: elapsed time (s), CPU (%), Real (MB), Virtual (MB)"
_BLANK = b" \t\0\xef\xbb\xbf"  # a byte order mark, too

Line = tuple[str, list[float], list[float]]  # what it is of, time since the log's start (s), memory (MiB)


@dataclass(frozen=True)
class MemoryLog:
    """The samples of a log, in order.

    Attributes:
        mib: memory in use (MiB); NaN where not reported.
        time_s: seconds since the log's first sample; of GPUs only filled by `read_nvidia_smi(..., with_time=True)`.
        gpu: the GPU's index in the node as a number, in a log without it the UUID; filled as `time_s` is, empty of
            processes.
        watts: power.draw, as `time_s`; NaN where not reported, empty in a log without this column.
        start_s: the first sample, seconds since 2000 in the node's local time; NaN in a log without timestamps.
    """

    mib: list[float]
    time_s: list[float] = field(default_factory=list)
    gpu: list[float | str] = field(default_factory=list)
    watts: list[float] = field(default_factory=list)
    start_s: float = float("nan")


def extremes(logs: Sequence[MemoryLog], if_empty: str) -> dict[str, float]:
    """`peak_mib`, `mean_mib` and `min_mib` over all samples that are known, each of the log with the most.

    A job can run out of one node's memory, not of all nodes' sum. {} without a log; UnavailableError, whose text is
    `if_empty`, for logs without a sample.
    """
    known = [[mib for mib in log.mib if not math.isnan(mib)] for log in logs]
    if logs and not any(known):
        raise UnavailableError(if_empty)
    ways = {"peak_mib": max, "mean_mib": fmean, "min_mib": min}
    return {name: max(way(mib) for mib in known if mib) for name, way in ways.items()} if logs else {}


def gpu_lines(run: Run) -> Iterator[Line]:
    """A line per GPU of every node, "node1 GPU 0". Raises LogError for a damaged log."""
    for node, path in _of_nodes(run, "gpu_memory", ".csv"):
        log = read_nvidia_smi(path, with_time=True)
        for gpu in sorted(set(log.gpu)):
            mine = [place for place, one in enumerate(log.gpu) if one == gpu]
            name = gpu if isinstance(gpu, str) else f"GPU {gpu:.0f}"
            yield f"{node}{name}", [log.time_s[place] for place in mine], [log.mib[place] for place in mine]


def cpu_lines(run: Run, kind: str) -> Iterator[Line]:
    """A line per node, "node1 RSS" or "node1 PSS". Raises LogError for a damaged log."""
    for node, path in _of_nodes(run, {"RSS": "cpu_memory", "PSS": "cpu_pss"}[kind], ".txt"):
        log = read_psrecord(path)
        yield f"{node}{kind}", log.time_s, log.mib


def _of_nodes(run: Run, prefix: str, suffix: str) -> Iterator[tuple[str, str]]:
    """A log's files, each with what stands before a line's name: nothing, or the node."""
    for path in run.paths(prefix, suffix):
        node = Path(path).name.removeprefix(prefix).removesuffix(suffix).lstrip("-")
        yield f"{node} " if node else "", path


# ---- nvidia-smi --query-gpu=... --format=csv -l 1 ----


def read_nvidia_smi(path: Path | str, with_time: bool = False) -> MemoryLog:
    """Parse one log; an empty file, or a header alone, gives no samples. A message between the rows costs itself.

    Raises:
        LogError: the file is no such log, or its columns cannot be told apart.
    """
    lines = csv_log.read_lines(path)
    first = csv_log.first_line(lines)
    names = header_names(path, first) or (_names_by_values(path, lines, first) if first else [])
    whole = [line if line.strip()[:1].isdigit() or line.count(",") == len(names) - 1 > 0 else "" for line in lines]
    rows = list(csv_log.rows(path, whole, names, first if "memory.used" in first else ""))
    memory = [memory_mib(path, number, row["memory.used"]) for number, row in rows]
    if not with_time:
        return MemoryLog(memory)
    column = next((name for name in _NAMES_OF_GPU if name in names), "")
    gpu = [row[column] if column else 0.0 for _, row in rows]
    if column == "index":
        gpu = [csv_log.number(path, number, row["index"], "index") for number, row in rows]
    watts = [_watts(path, number, row["power.draw"]) for number, row in rows] if "power.draw" in names else []
    if "timestamp" not in names:  # the launcher's logger writes a sample a second
        return MemoryLog(memory, [float(second) for second in range(len(rows))], gpu, watts)
    time_s = [seconds(path, number, row["timestamp"]) for number, row in rows]
    start_s = time_s[0] if time_s else float("nan")
    return MemoryLog(memory, [round(one - start_s, 3) for one in time_s], gpu, watts, start_s)


def memory_mib(path: Path | str, line: int, cell: str) -> float:
    """A cell of memory.used; NaN where the GPU does not report it. Raises LogError for another unit than MiB."""
    if _NOT_AVAILABLE.fullmatch(cell):
        return float("nan")
    return csv_log.number(path, line, cell, "memory.used (MiB)", unit="MiB")


def _watts(path: Path | str, line: int, cell: str) -> float:
    """A cell of power.draw; NaN where the GPU does not report it."""
    if _NOT_AVAILABLE.fullmatch(cell):
        return float("nan")
    return csv_log.number(path, line, cell, "power.draw (W)", unit="W")


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


def seconds(path: Path | str, line: int | None, stamp: str) -> float:
    """Seconds since 2000 of a time as nvidia-smi writes it. Raises LogError for another form."""
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
    names = ["uuid" if value.startswith(("GPU-", "MIG-")) else name for name, value in zip(names, values, strict=True)]
    if len(values) in (5, 6) and names[0] == "timestamp" and values[1].isdigit():
        names[1] = "index"  # as in the launcher's own query
    return names


def _used_of(path: Path | str, first: Sequence[float], second: Sequence[float]) -> int:
    """Which of two MiB columns is memory.used, 0 or 1: the one that is less in the first sample, before the training.

    The other one is memory.total (never smaller, one value) or memory.free (the sum is constant).
    """
    place = int(first[0] > second[0])
    used, other = (second, first) if place else (first, second)
    sums = [one + rest for one, rest in zip(used, other, strict=True)]
    is_free = max(sums) - min(sums) <= 2 and used[0] != other[0]  # each of the two is rounded to whole MiB
    is_total = all(one <= rest == other[0] for one, rest in zip(used, other, strict=True))
    if not (is_free or is_total):
        raise LogError(path, 1, "two columns in MiB", "a header: memory.used cannot be told from the values")
    return place


# ---- psrecord ----


def read_psrecord(path: Path | str) -> MemoryLog:
    """RSS or PSS from one log (psrecord's MB are 2^20 bytes); an empty file, or a header alone, gives no samples.

    A line below the samples that is none costs itself: one that is cut off, or what the crash of a node left (NULs).
    psrecord begins at 0 again in each attempt of a run: its time goes on where that of the attempt before ended.

    Raises:
        LogError: a line before the last, or the only one, does not hold four numbers.
    """
    memory_mib, time_s, before_s, elapsed_s = [], [], 0.0, 0.0
    lines = [(number, line) for number, line in enumerate(read_plain(path).splitlines(), 1) if line.strip(_BLANK)]
    for number, line in lines:
        if line.lstrip(_BLANK).startswith(b"#"):
            continue
        try:
            now_s, _, resident_mib, _ = map(float, line.split())
            if not (math.isfinite(now_s) and math.isfinite(resident_mib)):
                raise ValueError
        except ValueError:
            cut_off = len(line.split()) < 4 and set(line) <= set(b"0123456789. ")
            if number < lines[-1][0] or not (memory_mib or cut_off):
                raise LogError(path, number, line.decode("utf-8", "replace").strip(), _PSRECORD) from None
            continue
        before_s += elapsed_s if now_s < elapsed_s else 0.0
        elapsed_s = now_s
        memory_mib.append(resident_mib)
        time_s.append(before_s + now_s)
    return MemoryLog(memory_mib, time_s)
