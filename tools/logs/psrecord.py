"""CPU memory of a job over time from psrecord's log (and from memory_logger's, which has the same columns).

psrecord --include-children adds up the resident set sizes (RSS) of all child processes and so counts a page shared by
four of them four times; memory_logger's proportional set size (PSS) counts it once. Both are shown (erratum K13).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tools.errors import LogError, read_or_error
from tools.logs import batch

if TYPE_CHECKING:
    import numpy as np

# Where psrecord's format, "{:12.3f} {:12.3f} {:12.3f} {:12.3f}\\n", has what.
_LINE_BYTES = 52
_SPACES, _POINTS = [12, 25, 38], [8, 21, 34, 47]
_COLUMNS = "4 numbers: elapsed time (s), CPU (%), Real (MB), Virtual (MB)"


@dataclass(frozen=True)
class CpuFigures:
    """What the tables need of one log.

    Attributes:
        peak_mib, mean_mib: largest and mean Real, which is RSS or PSS (MiB: psrecord's MB are 2^20 bytes); None
            without samples.
    """

    peak_mib: float | None
    mean_mib: float | None


@dataclass(frozen=True)
class CpuLog(CpuFigures):
    """Attributes: time_s: seconds since the logger's start; real_mib: the samples of Real (MiB)."""

    time_s: np.ndarray
    real_mib: np.ndarray


def _figures(real_mib: np.ndarray) -> CpuFigures:
    return CpuFigures(float(real_mib.max()), float(real_mib.mean())) if real_mib.size else CpuFigures(None, None)


def figures(paths: list[str]) -> list[CpuFigures | LogError]:
    """Each log's figures, or what is wrong with it; many logs at once take a fraction of the time of one by one."""
    regular, joined = [], batch.Batch()
    for path in paths:
        lines = _without_header(batch.read_file(path))
        if lines and len(lines) % _LINE_BYTES == 0:
            regular.append(path)
            joined.add(lines)
    found = dict(zip(regular, joined.columns(_real_column), strict=True))
    return [
        _figures(columns[0]) if (columns := found.get(path)) else read_or_error(_alone, Path(path)) for path in paths
    ]


def _alone(path: Path) -> CpuFigures:
    return _figures(read(path).real_mib)


def _without_header(data: bytes) -> memoryview:
    return memoryview(data)[data.find(b"\n") + 1 if data.startswith(b"#") else 0 :]


def _real_column(lines: bytearray) -> list[np.ndarray] | None:
    """Real out of lines that are as psrecord writes them, four numbers as %12.3f, or None.

    Cutting the one column out by its place first leaves pyarrow a quarter of the bytes.
    """
    import numpy as np

    table = np.frombuffer(lines, np.uint8).reshape(-1, _LINE_BYTES)
    marks = table[:, [*_SPACES, *_POINTS, -1]]
    if not (marks == list(b" " * len(_SPACES) + b"." * len(_POINTS) + b"\n")).all():
        return None
    real = table[:, _SPACES[1] + 1 : _SPACES[2] + 1].copy()
    real[:, -1] = ord("\n")
    return batch.numbers(real.tobytes(), ["real"], ["real"], [])


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
        return _log(np.empty(0), np.empty(0))
    try:
        table = np.loadtxt(rows, ndmin=2, usecols=(0, 1, 2, 3))
    except (ValueError, IndexError) as error:
        number, found = next(((n, line) for n, line in enumerate(lines, 1) if not _is_row(line)), (None, str(error)))
        raise LogError(path, number, found.strip(), _COLUMNS) from error
    return _log(table[:, 0], table[:, 2])


def _log(time_s: np.ndarray, real_mib: np.ndarray) -> CpuLog:
    return CpuLog(*vars(_figures(real_mib)).values(), time_s, real_mib)


def _is_row(line: str) -> bool:
    if not line.strip() or line.lstrip().startswith("#"):
        return True
    try:
        return len([float(value) for value in line.split()]) == 4
    except ValueError:
        return False
