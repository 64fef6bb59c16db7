"""Which column of a GPU log is what: from its header, else from the shape of its values."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from tools.errors import LogError
from tools.logs import columns

if TYPE_CHECKING:
    import numpy as np

# The launcher's own query (logs/README.md).
CONTRACT = ["timestamp", "index", "name", "memory.used", "memory.total", "utilization.gpu"]
_TIMESTAMP = re.compile(r"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d")
_NUMBER = re.compile(r"\d+(\.\d+)?|\[.*\]|N/A")


def column_names(path: Path | str, data: bytes) -> list[str]:
    """Names of the file's columns: from its header, else from the shape of its values; [] for an empty file."""
    start = columns.first_line(data)
    if not start:
        return []
    values = columns.fields(start)
    if names := header_names(values):
        if "memory.used" not in names:
            raise LogError(path, 1, start, "a column memory.used in the header")
        return names
    return _guess_names(path, data, values)


def header_names(values: list[str]) -> list[str]:
    """Names of the columns if the values are a header's, else []."""
    names = [value.split("[")[0].strip() for value in values]
    is_header = any(
        "." in value and value[0].isalpha() and " " not in name for value, name in zip(values, names, strict=True)
    )
    return names if is_header else []


def _guess_names(path: Path | str, data: bytes, values: list[str]) -> list[str]:
    """Names for a file without header, where the values leave no doubt."""
    contract_shape = (
        len(values) in (5, 6)
        and _TIMESTAMP.match(values[0])
        and values[1].isdigit()
        and not _NUMBER.fullmatch(values[2])
        and all(_NUMBER.match(value) for value in values[3:])
        and all("%" not in value for value in values[3:5])
    )
    if contract_shape:
        return CONTRACT[: len(values)]
    names = [f"column {number}" for number in range(1, len(values) + 1)]
    names = ["timestamp" if _TIMESTAMP.match(value) else name for name, value in zip(names, values, strict=True)]
    memory = [i for i, value in enumerate(values) if value.endswith("MiB")]
    if not memory or len(memory) > 2:
        expected = "a header with memory.used, or units (MiB), or the columns " + ", ".join(CONTRACT)
        raise LogError(path, 1, ", ".join(values), expected)
    log = columns.Columns(path, data, names, "")
    samples = {place: log.numbers(names[place]) for place in memory}
    names[_used_of(path, samples, memory)] = "memory.used"
    return names


def _used_of(path: Path | str, samples: dict[int, np.ndarray], memory: list[int]) -> int:
    """Which of one or two MiB columns is memory.used.

    The other one is memory.total (never smaller, one value per GPU, so at most as many values as a node has GPUs) or
    memory.free (the sum is constant). Used and free are told apart by the first sample: the logger starts before the
    training, when less is used than free.
    """
    if len(memory) == 1:
        return memory[0]
    first, second = (samples[i] for i in memory)
    sums = first + second
    if sums.max() - sums.min() <= 2 and first[0] != second[0]:  # each of the two is rounded to whole MiB
        return memory[0] if first[0] < second[0] else memory[1]
    for used, total, position in ((first, second, memory[0]), (second, first, memory[1])):
        if bool((used <= total).all()) and bool((total == total[0]).all()):
            return position
    raise LogError(path, 1, "two columns in MiB", "a header: memory.used cannot be told from the values")
