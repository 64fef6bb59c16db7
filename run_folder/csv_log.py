"""Comma-separated logs of jobs that may have been killed, line by line: every line is checked."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from run_folder.errors import LogError
from run_folder.safe_open import read_plain

_UNITS = (b"MiB", b"%", b"W", b"]")  # a cell that ends in one is whole


def read_lines(path: Path | str) -> list[str]:
    """The file's lines, the last cell blanked where it may be cut off.

    A killed job leaves a last line without a line end. Its complete cells are true, but `8` may be the beginning of
    `82`; a cell that ends in its unit is complete.
    """
    data = read_plain(path).replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    *whole, last = data.split(b"\n")
    if whole and last:
        whole.append(last if last.rstrip().endswith(_UNITS) else last[: last.rfind(b",") + 1])
    return [line.decode("utf-8", "replace") for line in whole]


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split(",")]


def rows(
    path: Path | str, lines: Sequence[str], names: Sequence[str], header: str
) -> Iterator[tuple[int, dict[str, str]]]:
    """Line number and cells by column name; without headers, which a restarted logger writes in the middle, too.

    Raises:
        LogError: a line other than the last has more or fewer cells than names.
    """
    numbered = [(number, line) for number, line in enumerate(lines, 1) if line.strip()]
    for number, line in numbered:
        if header and header in line:
            continue
        found = cells(line)
        if len(found) == len(names):
            yield number, dict(zip(names, found, strict=True))
        elif number != numbered[-1][0]:
            raise LogError(path, number, line, f"{len(names)} fields: {', '.join(names)}")


def number(path: Path | str, line: int, cell: str, column: str, finite: bool = True, unit: str = "") -> float:
    """A cell's value. Raises LogError for what is no number, and for nan and infinity unless they may be."""
    try:
        value = float(cell.removesuffix(unit))
    except ValueError:
        value = None
    if value is None or (finite and not math.isfinite(value)):
        raise LogError(path, line, cell, f"a number in column {column}")
    return value
