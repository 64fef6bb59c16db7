"""CPU memory of a job over time from psrecord's log (and from memory_logger's, which has the same columns).

psrecord --include-children adds up the resident set sizes (RSS) of all child processes and so counts a page shared by
four of them four times; memory_logger's proportional set size (PSS) counts it once. Both are shown (erratum K13).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from evidence.plain_files import read_plain
from tools.errors import LogError
from tools.logs import digits
from tools.logs.memory_log import MemoryLog

if TYPE_CHECKING:
    import numpy as np

_LINE_BYTES = 52
_EXPECTED = "4 numbers: elapsed time (s), CPU (%), Real (MB), Virtual (MB)"


def read(path: Path | str, with_time: bool = False) -> MemoryLog:
    """RSS or PSS from one log (psrecord's MB are 2^20 bytes); an empty file, or a header alone, gives no samples.

    psrecord begins at 0 again in each attempt of a run: its time goes on where that of the attempt before ended.

    A line below the samples that is none costs itself: one that is cut off, or what the crash of a node left (NULs).

    Raises:
        LogError: a line before the last, or the only one, does not hold four numbers.
    """
    import numpy as np

    data = read_plain(path)
    body = data[data.find(b"\n") + 1 :] if data.startswith(b"#") else data
    wanted = (2, 0) if with_time else (2,)
    columns = [_as_printed(body, column) for column in wanted]
    if any(column is None for column in columns):
        columns = np.array(_rows(path, data, wanted)).reshape(-1, len(wanted)).T
    if with_time:
        time_s = columns[1]
        before_s = np.where(time_s[1:] < time_s[:-1], time_s[:-1], 0.0).cumsum()
        columns = columns[0], time_s + np.concatenate([np.zeros(min(1, time_s.size)), before_s])
    return MemoryLog(*columns)


def _rows(path: Path | str, data: bytes, wanted: Sequence[int]) -> list[list[float]]:
    """The wanted columns, line by line."""
    rows = []
    lines = [(number, line) for number, line in enumerate(data.splitlines(), 1) if line.strip(b" \t\0\xef\xbb\xbf")]
    for number, line in lines:
        if line.lstrip(b" \xef\xbb\xbf").startswith(b"#"):
            continue
        try:
            cells = line.split()
            if len(cells) != 4:
                raise ValueError
            rows.append([float(cells[column]) for column in wanted])
        except ValueError:
            if number < lines[-1][0] or not (rows or _cut_off(line)):
                raise LogError(path, number, line.decode("utf-8", "replace").strip(), _EXPECTED) from None
    return rows


def _as_printed(body: bytes, column: int) -> np.ndarray | None:
    """One column, if every line is as psrecord prints it, `%12.3f` four times: quicker than reading each number."""
    import numpy as np

    if len(body) % _LINE_BYTES:
        return None
    characters = np.frombuffer(body, np.uint8).reshape(-1, _LINE_BYTES).T
    if (characters[-1] != ord("\n")).any():
        return None
    return digits.numbers(np.ascontiguousarray(characters[13 * column : 13 * column + 12]), decimals=3)


def _cut_off(line: bytes) -> bool:
    return len(line.split()) < 4 and set(line) <= set(b"0123456789. ")
