"""Numbers from many small logs in one call of pyarrow.

A run's log has some ten kilobytes, and a call of a CSV reader costs more than parsing that much. So logs of one shape
are joined and parsed together, straight to numbers. That works for logs as the loggers write them; where something is
unusual, the batch is halved until the unusual log is alone, and its own parser reads that one with patience.

Why pyarrow and not polars: tools/README.md, "At the size of a course".
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

    Columns = list[np.ndarray]


def read_file(path: Path | str) -> bytes:
    """The file's bytes: what Path.read_bytes gives, in two thirds of its time, which counts for 50,000 small files."""
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123
        return file.read()


class Batch:
    """Lines of several logs, joined as they are read: copies of each would cost more than parsing them."""

    def __init__(self) -> None:
        self._joined = bytearray()
        self._ends = [0]  # of the logs, in bytes
        self._lines: list[int] = []

    def add(self, lines: bytes | memoryview) -> None:
        """Args: lines: of one log, without header, each line ended."""
        self._joined += lines
        self._lines.append(self._joined.count(b"\n", self._ends[-1]))
        self._ends.append(len(self._joined))

    def columns(self, parse: Callable[[bytearray], Columns | None]) -> list[Columns | None]:
        """The columns of each log; None for one that has to be read alone.

        Args:
            parse: from lines to columns with one number per line, or None where it meets anything else.
        """
        return self._columns(parse, self._joined, 0, len(self._lines)) if self._lines else []

    def _columns(self, parse: Callable, joined: bytearray, first: int, last: int) -> list[Columns | None]:
        lines = self._lines[first:last]
        # pyarrow takes a carriage return for a line end and leaves blank lines out; without the first, the number of
        # lines shows the second.
        found = None if b"\r" in joined else parse(joined)
        if found is not None and found[0].size == sum(lines):
            ends = accumulate(lines)
            return [[column[end - count : end] for column in found] for count, end in zip(lines, ends, strict=True)]
        if len(lines) == 1:
            return [None]
        middle = (first + last) // 2
        cut = self._ends[middle] - self._ends[first]
        return [
            *self._columns(parse, joined[:cut], first, middle),
            *self._columns(parse, joined[cut:], middle, last),
        ]


def numbers(lines: bytes | bytearray, names: list[str], wanted: list[str], not_available: list[str]) -> Columns | None:
    """The wanted columns of comma-separated lines as float64, NaN where not available; None if one holds anything else.

    Args:
        names: names of all columns, in the lines' order.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import csv

    try:
        table = csv.read_csv(
            pa.BufferReader(lines),
            read_options=csv.ReadOptions(column_names=names, use_threads=False),
            parse_options=csv.ParseOptions(quote_char=False),
            convert_options=csv.ConvertOptions(
                column_types=dict.fromkeys(wanted, pa.float64()), include_columns=wanted, null_values=not_available
            ),
        )
    except pa.ArrowInvalid:
        return None
    found = []
    for column in table.columns:
        known = pc.fill_null(column, float("nan")) if column.null_count else column
        # dlpack, because pyarrow's own to_numpy imports pandas where it is installed: 0.3 s.
        found.append(np.from_dlpack(known.combine_chunks()))
    return found
