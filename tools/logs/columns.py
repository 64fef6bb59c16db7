"""Comma-separated logs of jobs that may have been killed: columns as text, cut-off last lines tolerated.

Shared by the parsers of nvidia-smi's logs and steps.csv. A course's logs are gigabytes in small files, so whole columns
are cut out at once where every line is as it should be; anything unusual is read line by line.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from evidence.plain_files import read_plain
from tools.errors import LogError
from tools.logs import digits

if TYPE_CHECKING:
    import numpy as np

# What nvidia-smi prints for a quantity the GPU does not report.
_NOT_AVAILABLE = (b"", b"[N/A]", b"N/A", b"[Not Supported]", b"[Unknown Error]", b"[GPU requires reset]")
_UNIT_CHARACTERS = b" \t\rMiB%W"
_LONGEST = 24  # characters of a number with its unit
_FEW = 150  # numbers that are read one by one in less time


def read_bytes(path: Path | str) -> bytes:
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


class Columns:
    """A log's columns, without header lines; a restarted logger writes one in the middle of the file.

    Args:
        names: of all columns, in the file's order.
        header: the first line if it is a header, else ''.

    Raises:
        LogError: a line other than the last has the wrong number of fields.
    """

    def __init__(self, path: Path | str, data: bytes, names: list[str], header: str):
        self._path, self._data, self._names = path, data, names
        self._places = {name: place for place, name in enumerate(names)}
        marker = header.encode()
        lines = data[data.find(b"\n") + 1 :] if header else data
        if header and marker in lines:  # perhaps after a line that was cut off when the logger was restarted
            lines = b"\n".join(line for line in lines.split(b"\n") if marker not in line)
        last = lines.rfind(b"\n", 0, -1) + 1
        if lines.count(b",", last) != len(names) - 1:  # cut off
            lines = lines[:last]
        if b"\r" in lines or not self._cut(lines):
            self._cut(b"".join(line + b"\n" for line in self._complete_lines(marker)))

    def _cut(self, lines: bytes) -> bool:
        """Find where cells end; returns whether every line has all of them."""
        import numpy as np

        self._lines, width = b" " * _LONGEST + b"\n" + lines, len(self._names)
        characters = np.frombuffer(self._lines, np.uint8)
        is_line_end = characters == ord("\n")
        self._separators = ((characters == ord(",")) | is_line_end).nonzero()[0]
        line_ends = self._separators[::width]
        # Each separator that should end a line does, the last one too, and no other one does.
        complete = len(self._separators) % width == 1 % width and is_line_end[line_ends].all()
        return bool(complete) and np.count_nonzero(is_line_end) == len(line_ends)

    def _complete_lines(self, marker: bytes) -> Iterator[bytes]:
        """Line by line; blank ones are left out, and the last one if it is cut off."""
        width = len(self._names)
        numbered = [(n, line) for n, line in enumerate(self._data.splitlines(), 1) if line.strip(_UNIT_CHARACTERS)]
        for number, line in numbered:
            if marker and marker in line:
                continue
            if line.count(b",") == width - 1:
                yield line
            elif number != numbered[-1][0]:
                expected = f"{width} fields: {', '.join(self._names)}"
                raise LogError(self._path, number, line.decode("utf-8", "replace"), expected)

    @cached_property
    def _cells(self) -> list[bytes]:
        return self._lines.replace(b"\n", b",").split(b",")[1:-1]

    def cells(self, name: str) -> list[bytes]:
        return self._cells[self._places[name] :: len(self._names)]

    def numbers(self, name: str) -> np.ndarray:
        """One column as float64; units are dropped, values that are not available are NaN.

        Raises:
            LogError: a value is not a number.
        """
        import numpy as np

        if (found := self._whole_numbers(name)) is not None:
            return found
        cells = self.cells(name)
        with contextlib.suppress(ValueError):
            return np.array(cells, dtype=float)
        known = {cell: _number(cell) for cell in set(cells)}
        if bad := [cell for cell, value in known.items() if value is None]:
            found = next(cell for cell in cells if cell in bad)
            place = self._data.find(b"," + found) if b"," + found in self._data else self._data.find(found)
            line = self._data.count(b"\n", 0, place + 1) + 1
            raise LogError(self._path, line, found.decode("utf-8", "replace").strip(), f"a number in column {name}")
        return np.array([known[cell] for cell in cells], dtype=float)

    def _whole_numbers(self, name: str) -> np.ndarray | None:
        """The same of a column of whole numbers that all end in the same unit, or none; None of another one."""
        import numpy as np

        place, width = self._places[name], len(self._names)
        before, ends = self._separators[place:-1:width], self._separators[place + 1 :: width]
        if len(ends) < _FEW:
            return None
        widths = ends - before - 1
        longest = int(widths.max())
        if not 0 < longest <= _LONGEST:
            return None
        # The `longest` characters before each cell's end, all at once: a view of the lines at every character.
        ending = np.ndarray(len(self._lines) - longest + 1, f"V{longest}", self._lines, strides=1)[ends - longest]
        characters = np.ascontiguousarray(ending.view(np.uint8).reshape(-1, longest).T)
        np.putmask(characters, np.arange(longest, 0, -1)[:, None] > widths, ord(" "))
        first = self._lines[ends[0] - longest : ends[0]]
        unit = len(first) - len(first.rstrip(_UNIT_CHARACTERS))
        if (characters[longest - unit :] != characters[longest - unit :, :1]).any():
            return None
        return digits.numbers(characters[: longest - unit], 0)


def _number(cell: bytes) -> float | None:
    """NaN for a value that is not available, None for what is no number."""
    text = cell.strip(_UNIT_CHARACTERS)
    if text in _NOT_AVAILABLE or cell.strip() in _NOT_AVAILABLE:
        return float("nan")
    try:
        return float(text)
    except ValueError:
        return None
