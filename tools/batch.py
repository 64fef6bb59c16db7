"""Numbers from many small logs in one call of pyarrow.

A run's log has some ten kilobytes, and a call of any CSV reader costs as much as parsing five of them. So logs of one
shape are joined and parsed together, straight to numbers. That works for logs as the loggers write them; where something
is unusual, the batch is halved until the unusual log is alone, and its parser reads that one with patience.

Why pyarrow and not polars: benchmarks/README.md has the measurement.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

    Columns = list[np.ndarray]


def columns(bodies: list[bytes], parse: Callable[[bytes], Columns | None]) -> list[Columns | None]:
    """The columns of each body; None for one that has to be read alone.

    Args:
        bodies: the lines of one log each, without header, each line ended.
        parse: from lines to columns with one number per line, or None where it meets anything else.
    """
    if not bodies:
        return []
    lines = [body.count(b"\n") for body in bodies]
    joined = b"".join(bodies)
    # pyarrow takes a carriage return for a line end and leaves blank lines out; without the first, the number of lines
    # shows the second.
    found = None if b"\r" in joined else parse(joined)
    if found is None or found[0].size != sum(lines):
        middle = len(bodies) // 2
        return columns(bodies[:middle], parse) + columns(bodies[middle:], parse) if middle else [None]
    return [
        [column[end - count : end] for column in found] for count, end in zip(lines, accumulate(lines), strict=True)
    ]


def numbers(lines: bytes, names: list[str], wanted: list[str], not_available: list[str]) -> Columns | None:
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
            read_options=csv.ReadOptions(column_names=names, use_threads=True),
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
