"""Comma-separated logs of jobs that may have been killed: columns as text, cut-off last lines tolerated.

Shared by the parsers of nvidia-smi's logs and steps.csv. A course's logs are gigabytes in small files, so whole columns
are cut out at once where every line is as it should be; anything unusual is read line by line.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from evidence.plain_files import read_plain
from tools.errors import LogError

if TYPE_CHECKING:
    import numpy as np

    Cells = dict[str, list[bytes]]  # by column

# What nvidia-smi prints for a quantity the GPU does not report.
_NOT_AVAILABLE = (b"", b"[N/A]", b"N/A", b"[Not Supported]", b"[Unknown Error]", b"[GPU requires reset]")
_UNIT_CHARACTERS = b" \t\rMiB%W"
# A number's unit becomes spaces: that keeps `5 MiB` a number and `5M0` none.
_UNITS_TO_SPACES = bytes(ord(" ") if byte in b"MiB%W" else byte for byte in range(256))


def read_bytes(path: Path) -> bytes:
    """The file's bytes, with the last field blanked where it may be cut off.

    A killed logger leaves a last line without a line end. Its complete fields are true, but `8` may be the beginning
    of `82`; a field that ends in its unit is complete.
    """
    data = read_plain(path)
    if data.endswith(b"\n"):
        return data
    if b"\n" not in data:
        return b""  # killed while it wrote the first line
    comma, line_start = data.rfind(b","), data.rfind(b"\n") + 1
    if comma < line_start or data.rstrip().endswith((b"MiB", b"%", b"W", b"]")):
        return data + b"\n"
    return data[: comma + 1] + b"\n"


def first_line(data: bytes) -> str:
    """The first line that is not blank, or '' for an empty log."""
    return data.lstrip()[:65536].partition(b"\n")[0].decode("utf-8", "replace").strip()


def fields(line: str) -> list[str]:
    return [field.strip() for field in line.split(",")]


def split(path: Path, data: bytes, names: list[str], header: str) -> Cells:
    """Every column's cells, without header lines; a restarted logger writes one in the middle of the file.

    Args:
        names: of all columns, in the file's order.
        header: the first line if it is a header, else ''.

    Raises:
        LogError: a line other than the last has the wrong number of fields.
    """
    marker = header.encode()
    lines = data[data.find(b"\n") + 1 :] if header else data
    if header and marker in lines:  # perhaps after a line that was cut off when the logger was restarted
        lines = b"\n".join(line for line in lines.split(b"\n") if marker not in line)
    last = lines.rfind(b"\n", 0, -1) + 1
    if lines.count(b",", last) != len(names) - 1:  # cut off
        lines = lines[:last]
    width = len(names) + 1
    cells = lines.replace(b"\n", b",\n,").split(b",")
    if len(cells) % width == 1 and set(cells[width - 1 :: width]) == {b"\n"} and b"\r" not in lines:
        return {name: cells[place:-1:width] for place, name in enumerate(names)}
    rows = []
    numbered = [(number, line) for number, line in enumerate(data.splitlines(), 1) if line.strip(_UNIT_CHARACTERS)]
    for number, line in numbered:
        row = line.split(b",")
        if header and marker in line:
            continue
        if len(row) == len(names):
            rows.append(row)
        elif number != numbered[-1][0]:
            raise LogError(path, number, line.decode("utf-8", "replace"), f"{len(names)} fields: {', '.join(names)}")
    return {name: [row[place] for row in rows] for place, name in enumerate(names)}


def numbers(path: Path, data: bytes, cells: Cells, column: str) -> np.ndarray:
    """One column as float64; units are dropped, values that are not available are NaN.

    Raises:
        LogError: a value is not a number.
    """
    import numpy as np

    with contextlib.suppress(ValueError):
        return np.array(cells[column], dtype=float)
    with contextlib.suppress(ValueError):  # all at once, in a third of the time
        plain = b",".join(cells[column]).translate(_UNITS_TO_SPACES).replace(b"[N/A]", b"nan")
        return np.array(plain.split(b","), dtype=float)
    known = {cell: _number(cell) for cell in set(cells[column])}
    if bad := [cell for cell, value in known.items() if value is None]:
        found = next(cell for cell in cells[column] if cell in bad)
        place = data.find(b"," + found) if b"," + found in data else data.find(found)
        line = data.count(b"\n", 0, place + 1) + 1
        raise LogError(path, line, found.decode("utf-8", "replace").strip(), f"a number in column {column}")
    return np.array([known[cell] for cell in cells[column]], dtype=float)


def _number(cell: bytes) -> float | None:
    """NaN for a value that is not available, None for what is no number."""
    text = cell.strip(_UNIT_CHARACTERS)
    if text in _NOT_AVAILABLE or cell.strip() in _NOT_AVAILABLE:
        return float("nan")
    try:
        return float(text)
    except ValueError:
        return None
