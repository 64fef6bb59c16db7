"""CPU memory of a job over time from psrecord's log (and from memory_logger's, which has the same columns).

psrecord --include-children adds up the resident set sizes (RSS) of all child processes and so counts a page shared by
four of them four times; memory_logger's proportional set size (PSS) counts it once. Both are shown (erratum K13).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tools.errors import LogError

if TYPE_CHECKING:
    import numpy as np

_COLUMNS = "4 numbers: elapsed time (s), CPU (%), Real (MB), Virtual (MB)"


@dataclass(frozen=True)
class CpuLog:
    """Attributes: time_s: seconds since the logger's start; real_mib: RSS or PSS (psrecord's MB are 2^20 bytes)."""

    time_s: np.ndarray
    real_mib: np.ndarray

    @property
    def peak_mib(self) -> float | None:
        return float(self.real_mib.max()) if self.real_mib.size else None

    @property
    def mean_mib(self) -> float | None:
        return float(self.real_mib.mean()) if self.real_mib.size else None


def read(path: Path) -> CpuLog:
    """Parse one log; an empty file, or a header alone, gives no samples; a cut-off last line is left out.

    Raises:
        LogError: a line other than the last does not hold four numbers.
    """
    import numpy as np

    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    rows = [line for line in lines if line.strip() and not line.lstrip().startswith("#")]
    # Virtual, the last field, is not used, so a line with a fourth field has everything that is.
    if rows and len(rows[-1].split()) < 4 and set(rows[-1]) <= set("0123456789. "):
        rows.pop()
    if not rows:
        return CpuLog(np.empty(0), np.empty(0))
    try:
        table = np.loadtxt(rows, ndmin=2, usecols=(0, 1, 2, 3))
    except (ValueError, IndexError) as error:
        number, found = next(((n, line) for n, line in enumerate(lines, 1) if not _is_row(line)), (None, str(error)))
        raise LogError(path, number, found.strip(), _COLUMNS) from error
    return CpuLog(table[:, 0], table[:, 2])


def _is_row(line: str) -> bool:
    if not line.strip() or line.lstrip().startswith("#"):
        return True
    try:
        return len([float(value) for value in line.split()]) == 4
    except ValueError:
        return False
