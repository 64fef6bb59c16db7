"""Read comma-separated logs of jobs that may have been killed; every line is checked.

`step_rows` and `step_numbers` are for steps.csv, as the job, the tables and the live view read it.
"""

import codecs
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from workshop.run_folder.errors import LogError
from workshop.run_folder.safe_open import read_plain
from workshop.run_folder.schema import STEPS_COLUMNS_1

_UNITS = (b"MiB", b"%", b"W", b"]")  # a cell that ends in one is whole
_STEP_NUMBERS = ("step", "step_time_s", "tokens", "loss", "samples")
Rows = Iterator[tuple[int, dict[str, str]]]  # line number, cells by column


def read_lines(path: Path | str) -> list[str]:
    """Return the file's lines, the last cell blanked where it may be cut off.

    A killed job leaves a last line without a line end, where `8` may be the beginning of `82`; a cell that ends in its
    unit is complete. Raises LogError for UTF-16.
    """
    data = read_plain(path).removeprefix(codecs.BOM_UTF8)
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise LogError(path, 1, "UTF-16", "UTF-8; PowerShell's > writes UTF-16, `| Out-File -Encoding utf8` does not")
    data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    *whole, last = data.split(b"\n")
    if whole and last:
        whole.append(last if last.rstrip().endswith(_UNITS) else last[: last.rfind(b",") + 1])
    return [line.decode("utf-8", "replace") for line in whole]


def first_line(lines: Sequence[str]) -> str:
    """Return the first line that is not blank, which should be the header; "" if all are blank."""
    return next((line.strip() for line in lines if line.strip()), "")


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split(",")]


def rows(path: Path | str, lines: Sequence[str], names: Sequence[str], header: str) -> Rows:
    """Give line number and cells by column name, without headers, which a restarted logger repeats.

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
    """Return a cell's value. Raises LogError for no number, and for nan and infinity if `finite`."""
    try:
        value = float(cell.removesuffix(unit))
    except ValueError:
        value = None
    if value is None or (finite and not math.isfinite(value)):
        raise LogError(path, line, cell, f"a number in column {column}")
    return value


def step_rows(path: Path | str, lines: Sequence[str] | None = None, header: str = "") -> Rows:
    """Give the steps of steps.csv, none if it is empty; or those of some of its lines, with its header.

    Raises:
        LogError: a line is not as in the contract, or a column is missing in the header.
    """
    if lines is None:
        lines = read_lines(path)
        header = first_line(lines)
    if not header:
        return
    names = cells(header)
    if missing := [name for name in STEPS_COLUMNS_1[:5] if name not in names]:
        expected = f"the header {','.join(STEPS_COLUMNS_1)} (missing: {', '.join(missing)})"
        raise LogError(path, 1, header, expected)
    yield from rows(path, lines, names, header)


def step_numbers(path: Path | str, rows: Rows) -> Iterator[dict[str, float]]:
    """Give each step's number, time (s), tokens, loss and, in newer runs, examples. A loss may be nan."""
    for line, row in rows:
        names = [name for name in _STEP_NUMBERS if name in row]
        yield {name: number(path, line, row[name], name, finite=name != "loss") for name in names}
