"""CPU memory of a job over time from psrecord's log (and from memory_logger's, which has the same columns).

psrecord --include-children adds up the resident set sizes (RSS) of all child processes and so counts a page shared by
four of them four times; memory_logger's proportional set size (PSS) counts it once. Both are shown (erratum K13).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from tools.errors import LogError
from tools.logs import columns

if TYPE_CHECKING:
    import numpy as np

_EXPECTED = "4 numbers: elapsed time (s), CPU (%), Real (MB), Virtual (MB)"


@dataclass(frozen=True)
class CpuLog:
    """Attributes: real_mib: the samples of RSS or PSS (MiB: psrecord's MB are 2^20 bytes).

    peak_mib, mean_mib: largest and mean Real; None without samples.
    """

    real_mib: np.ndarray

    @cached_property
    def peak_mib(self) -> float | None:
        return float(self.real_mib.max()) if self.real_mib.size else None

    @cached_property
    def mean_mib(self) -> float | None:
        return float(self.real_mib.mean()) if self.real_mib.size else None


def read(path: Path) -> CpuLog:
    """Parse one log; an empty file, or a header alone, gives no samples; a cut-off last line is left out.

    Raises:
        LogError: a line other than the last does not hold four numbers.
    """
    import numpy as np

    data = columns.all_bytes(path)
    body = data[data.find(b"\n") + 1 :] if data.startswith(b"#") else data
    cells = body.split()
    try:  # every line as psrecord writes it
        if len(cells) == 4 * body.count(b"\n") and body.endswith(b"\n"):
            return CpuLog(np.array(cells[2::4], dtype=float))
    except ValueError:
        pass
    rows, lines = [], data.splitlines()
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith(b"#"):
            continue
        try:
            row = [float(cell) for cell in line.split()]
        except ValueError:
            row = []
        if len(row) == 4:
            rows.append(row)
        elif number < len(lines) or len(line.split()) >= 4 or not set(line) <= set(b"0123456789. "):  # not just cut off
            raise LogError(path, number, line.decode("utf-8", "replace").strip(), _EXPECTED)
    return CpuLog(np.array(rows, dtype=float).reshape(-1, 4)[:, 2])
