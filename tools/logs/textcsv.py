"""Comma-separated logs of jobs that may have been killed: columns as text, cut-off last lines tolerated.

Shared by the parsers of nvidia-smi logs and steps.csv. pyarrow parses and cleans whole columns, because a site's logs
together reach gigabytes; it is imported on use, so that commands which read no such log start without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from tools.errors import LogError
from tools.logs import batch

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

# What nvidia-smi prints for a quantity the GPU does not report.
_NOT_AVAILABLE = ["", "[N/A]", "N/A", "[Not Supported]", "[Unknown Error]", "[GPU requires reset]"]
_UNIT_CHARACTERS = " \t\rMiB%W"
# A number's unit becomes spaces, which pyarrow trims: that keeps `5 MiB` a number and `5M0` none.
_UNITS_TO_SPACES = bytes(ord(" ") if character in b"MiB%W" else character for character in range(256))
# As pyarrow meets them: it does not trim what is no number.
_NOT_AVAILABLE_CELLS = [
    blank + text.encode().translate(_UNITS_TO_SPACES).decode() for text in _NOT_AVAILABLE for blank in ("", " ")
]


def read_bytes(path: Path) -> bytes:
    """The file's bytes, with the last field blanked where it may be cut off.

    A killed logger leaves a last line without a line end. Its complete fields are true, but `8` may be the beginning
    of `82`; a field that ends in its unit is complete.
    """
    return without_cut_field(path.read_bytes())


def without_cut_field(data: bytes) -> bytes:
    """A log's bytes, changed as read_bytes says."""
    if data.endswith(b"\n"):
        return data
    if b"\n" not in data:
        return b""  # killed while it wrote the first line
    comma, line_start = data.rfind(b","), data.rfind(b"\n") + 1
    if comma < line_start or data.rstrip().endswith((b"MiB", b"%", b"W", b"]")):
        return data + b"\n"
    return data[: comma + 1] + b"\n"


def many_columns(
    logs: Iterable[bytes], columns_of: Callable[[bytes], tuple[list[str], list[str]] | None]
) -> list[dict[str, np.ndarray] | None]:
    """Columns of numbers of many logs at once; None for a log that read_columns has to read.

    Args:
        columns_of: from a log's header line to the names of all columns and the wanted ones; None if it is no header.
    """
    found: list[dict[str, np.ndarray] | None] = []
    by_header: dict[bytes, tuple[list[int], batch.Batch]] = {}
    for position, log in enumerate(logs):
        header = log[: log.find(b"\n") + 1]
        positions, joined = by_header.setdefault(header, ([], batch.Batch()))
        positions.append(position)
        joined.add(_body(log, header))
        found.append(None)
    for header, (positions, joined) in by_header.items():
        if named := columns_of(header):
            names, wanted = named
            parsed = joined.columns(lambda lines, n=names, w=wanted: batch.numbers(lines, n, w, _NOT_AVAILABLE_CELLS))
            for position, columns in zip(positions, parsed, strict=True):
                found[position] = columns and dict(zip(wanted, columns, strict=True))
    return found


def _body(log: bytes, header: bytes) -> memoryview:
    """The log without units, header lines and a last line that was cut off before its last field."""
    plain = without_cut_field(log).translate(_UNITS_TO_SPACES)
    # The header comes again where the logger was restarted.
    plain = plain.replace(b"\n" + header.translate(_UNITS_TO_SPACES), b"\n")
    last = plain.rfind(b"\n", 0, -1) + 1
    complete = plain.count(b",", last) == header.count(b",")
    return memoryview(plain)[len(header) : None if complete else last]


def first_line(data: bytes) -> str:
    """The first line that is not blank, or '' for an empty log."""
    for line in data[:65536].splitlines():
        if line.strip():
            return line.decode("utf-8", "replace").strip()
    return ""


def fields(line: str) -> list[str]:
    return [field.strip() for field in line.split(",")]


def read_columns(path: Path, data: bytes, names: list[str], wanted: list[str], header: str) -> pa.Table:
    """The wanted columns as strings, without (possibly repeated) header lines.

    Args:
        names: names of all columns, in the file's order.
        wanted: the subset to convert; parsing the others would only cost time.
        header: beginning of a header line; a restarted logger writes it again in the middle of the file.

    Raises:
        LogError: a line other than the last has the wrong number of fields.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import csv

    odd_rows: list[tuple[int, str]] = []

    def keep_for_inspection(row: csv.InvalidRow) -> str:
        odd_rows.append((row.number, row.text))
        return "skip"

    try:
        table = csv.read_csv(
            pa.BufferReader(data),
            # One thread: pyarrow knows line numbers only then.
            read_options=csv.ReadOptions(column_names=names, use_threads=False),
            parse_options=csv.ParseOptions(quote_char=False, invalid_row_handler=keep_for_inspection),
            convert_options=csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()), include_columns=wanted, strings_can_be_null=False
            ),
        )
    except pa.ArrowInvalid as error:
        raise LogError(path, None, str(error), f"lines of {len(names)} comma-separated fields in UTF-8") from error
    last_line = data.rstrip()[data.rstrip().rfind(b"\n") + 1 :].decode("utf-8", "replace")
    for number, text in odd_rows:
        # Cut off at the end, or cut off and followed by the header of the restarted logger on the same line.
        if text.strip().rstrip(",") != last_line.strip().rstrip(",") and header not in text:
            raise LogError(path, number, text, f"{len(names)} fields: {', '.join(names)}")
    first = table.column(wanted[0])
    if header and table.num_rows:
        repeated = pc.starts_with(pc.utf8_ltrim_whitespace(first), pattern=header_cell(header, names, wanted[0]))
        if pc.any(repeated).as_py():
            table = table.filter(pc.invert(repeated))
    return table


def header_cell(header: str, names: list[str], column: str) -> str:
    """The header line's own text in `column`, by which a repeated header line is recognised."""
    return fields(header)[names.index(column)]


def to_numbers(path: Path, data: bytes, table: pa.Table, column: str, position: int) -> np.ndarray:
    """One text column as float64; units are dropped, values that are not available are NaN.

    Args:
        position: the column's place in the file's lines, to name the line of a value that is no number.

    Raises:
        LogError: a value is not a number.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    text = pc.utf8_trim(table.column(column), characters=_UNIT_CHARACTERS)
    try:
        # dlpack, because pyarrow's own to_numpy imports pandas where it is installed: 0.3 s.
        return np.from_dlpack(pc.cast(text, pa.float64()).combine_chunks())
    except pa.ArrowInvalid:
        missing = pc.is_in(text, value_set=pa.array(_NOT_AVAILABLE))
        known = pc.if_else(missing, pa.scalar(None, pa.string()), text)
    try:
        return np.from_dlpack(pc.fill_null(pc.cast(known, pa.float64()), float("nan")).combine_chunks())
    except pa.ArrowInvalid as error:
        line, found = _first_non_number(data, position)
        raise LogError(path, line, found, f"a number in column {column}") from error


def _first_non_number(data: bytes, position: int) -> tuple[int | None, str]:
    for number, line in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
        row = fields(line)
        value = row[position].strip(_UNIT_CHARACTERS) if len(row) > position else ""
        try:
            float(value)
        except ValueError:
            if value not in _NOT_AVAILABLE and number > 1:
                return number, row[position]
    return None, "a value that is no number"
