"""The lines of steps.csv, as the tables and the live view read them (logs/README.md)."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from evidence import csv_log
from evidence.errors import LogError
from evidence.schema import STEPS_VERSIONS

_REQUIRED = STEPS_VERSIONS[1][:5]
_NUMBERS = ("step", "step_time_s", "tokens", "loss", "samples")


def column_names(path: Path | str, header: str) -> list[str]:
    """Raises LogError if a column of the contract is missing."""
    names = csv_log.cells(header)
    if missing := [name for name in _REQUIRED if name not in names]:
        expected = f"the header {','.join(STEPS_VERSIONS[1])} (missing: {', '.join(missing)})"
        raise LogError(path, 1, header, expected)
    return names


def numbers(path: Path | str, lines: Sequence[str], header: str, names: Sequence[str]) -> Iterator[dict[str, float]]:
    """Each step's number, time (s), tokens, loss and, in newer runs, examples. A loss may be nan.

    Raises:
        LogError: a line is not as in the contract.
    """
    wanted = [name for name in _NUMBERS if name in names]
    for line, row in csv_log.rows(path, lines, names, header):
        yield {name: csv_log.number(path, line, row[name], name, finite=name != "loss") for name in wanted}
