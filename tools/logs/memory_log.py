"""Memory over time: of GPUs (nvidia_smi.py), or of a job's processes from psrecord's log (memory_logger's is alike).

psrecord --include-children adds up the resident set sizes (RSS) of all child processes and so counts a page shared by
four of them four times; memory_logger's proportional set size (PSS) counts it once. Both are shown (erratum K13).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

from run_folder.safe_open import read_plain
from tools.errors import LogError

_EXPECTED = "4 numbers: elapsed time (s), CPU (%), Real (MB), Virtual (MB)"
_BLANK = b" \t\0\xef\xbb\xbf"  # a byte order mark, too


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
        known = [mib for mib in self.mib if not math.isnan(mib)]
        return {"peak_mib": max(known), "mean_mib": fmean(known), "min_mib": min(known)} if known else {}


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
                raise LogError(path, number, line.decode("utf-8", "replace").strip(), _EXPECTED) from None
            continue
        before_s += elapsed_s if now_s < elapsed_s else 0.0
        elapsed_s = now_s
        memory_mib.append(resident_mib)
        time_s.append(before_s + now_s)
    return MemoryLog(memory_mib, time_s)
