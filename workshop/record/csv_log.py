"""Read comma-separated logs of jobs that may have been killed; every line is checked."""

import codecs
from collections.abc import Sequence
from pathlib import Path

from workshop.record.errors import LogError, read_plain
from workshop.record.schema import STEPS_COLUMNS

_UNITS = (b"MiB", b"%", b"W", b"]")  # a cell that ends in a unit is whole
LARGEST = 1e18  # of a number: sums of much larger ones overflow
Rows = list[tuple[int, dict[str, str]]]  # line number, cells by column


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


def rows(path: Path | str, required: Sequence[str], messages: bool = False) -> tuple[list[str], Rows]:
    """Return the columns' names, without units, and each line's number and cells; nothing of an empty file.

    Headers that a restarted logger repeats are left out.

    Args:
        required: columns that the header must have; "this or that" is either.
        messages: leave out lines that are no rows, too: what another program wrote between them.

    Raises:
        LogError: a column is missing in the header; or a line other than the last has more or fewer cells.
    """
    lines = [(number, line.strip()) for number, line in enumerate(read_lines(path), 1) if line.strip()]
    if not lines:
        return [], []
    header = lines[0][1]
    names = [cell.split("[")[0].strip() for cell in header.split(",")]
    if missing := [name for name in required if not {*name.split(" or ")} & {*names}]:
        raise LogError(path, 1, header, f"a header with {', '.join(required)} (missing: {', '.join(missing)})")
    if messages:
        lines = [line for line in lines if line[1][:1].isdigit() or line[1].count(",") == len(names) - 1]
    numbered = []
    for number, line in lines:
        cells = [cell.strip() for cell in line.split(",")]
        if header in line:
            continue
        if len(cells) == len(names):
            numbered.append((number, dict(zip(names, cells, strict=True))))
        elif number != lines[-1][0]:
            raise LogError(path, number, line, f"{len(names)} fields: {', '.join(names)}")
    return names, numbered


def number(path: Path | str, line: int, cell: str, column: str, finite: bool = True, unit: str = "") -> float:
    """Return a cell's value. Raises LogError for no number, and for nan and what is above LARGEST if `finite`."""
    try:
        value = float(cell.removesuffix(unit))
    except ValueError:
        value = None
    if value is None or (finite and not abs(value) <= LARGEST):
        raise LogError(path, line, cell, f"a number in column {column}")
    return value


def step_rows(path: Path | str) -> Rows:
    """Return the steps of steps.csv. Raises LogError as `rows` does."""
    return rows(path, STEPS_COLUMNS[:5])[1]
