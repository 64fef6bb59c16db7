"""The lines of steps.csv, as the job, the tables and the live view read them (logs/README.md)."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from run_folder import csv_log
from run_folder.errors import LogError
from run_folder.schema import STEPS_VERSIONS

_REQUIRED = STEPS_VERSIONS[1][:5]
_NUMBERS = ("step", "step_time_s", "tokens", "loss", "samples")
Rows = Iterator[tuple[int, dict[str, str]]]  # line number, cells by column


def rows(path: Path | str) -> Rows:
    """All steps of the file; none of an empty one. Raises LogError for a line that is not as in the contract."""
    lines = csv_log.read_lines(path)
    header = next((line.strip() for line in lines if line.strip()), "")
    yield from rows_of(path, lines, header) if header else ()


def rows_of(path: Path | str, lines: Sequence[str], header: str) -> Rows:
    """Some lines of the file, as numbered rows. Raises LogError, also if the header lacks a column of the contract."""
    names = csv_log.cells(header)
    if missing := [name for name in _REQUIRED if name not in names]:
        expected = f"the header {','.join(STEPS_VERSIONS[1])} (missing: {', '.join(missing)})"
        raise LogError(path, 1, header, expected)
    yield from csv_log.rows(path, lines, names, header)


def numbers(path: Path | str, rows: Rows) -> Iterator[dict[str, float]]:
    """Each step's number, time (s), tokens, loss and, in newer runs, examples. A loss may be nan."""
    for line, row in rows:
        yield {
            name: csv_log.number(path, line, row[name], name, finite=name != "loss") for name in _NUMBERS if name in row
        }
