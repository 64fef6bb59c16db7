"""Bandwidth of the all-reduce by message size, as nccl-tests print it (all_reduce_perf).

Newer versions of nccl-tests and the fabric check (custom_model/fabric_check.py) write a line `# Collective test
starting: all_reduce_perf` before the results; other tests' results are skipped. `GB` are 10^9 bytes.
Source: https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import NamedTuple

from workshop.record.errors import LogError, read_plain

_START = re.compile(r"#\s*Collective test starting:\s*(\w+?)_perf")
_RANK = re.compile(r"#\s+Rank\s+(\d{1,9})\s.*?\bon\s+\S+\s+device")
# size, count, type[, redop][, root], then twice time, algbw, busbw, errors: out of place, in place.
_ROW = re.compile(r"\d+\s+\d+\s+[a-z]\w*(?:\s|$)", re.ASCII)


class FabricLog(NamedTuple):
    """Ranks of one world, and GB/s on the bus by message size.

    Processes that are each a world of their own are all called rank 0 (erratum K12). The bus bandwidth is what the
    links carry: size / time x 2(n-1)/n for an all-reduce of n ranks; it does not depend on n and so can be compared
    with the hardware's.
    """

    world_size: int
    bandwidths: dict[int, float]

    @property
    def allreduce_gb_per_s(self) -> float | None:
        """Bus bandwidth of the largest message; None if there is none."""
        return self.bandwidths[max(self.bandwidths)] if self.bandwidths else None


def read(path: Path | str) -> FabricLog:
    """Parse a log; skip lines of NCCL itself and a last line that is cut off.

    Raises:
        LogError: a line of results does not hold the numbers it should, or no line above names its test.
    """
    ranks, bandwidths, test = set[int](), dict[int, float](), ""
    lines = read_plain(path).decode("utf-8", "replace").split("\n")[:-1]  # after the last line end it is cut off
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if match := _START.match(text):
            test = match[1]
        elif match := _RANK.match(text):
            ranks.add(int(match[1]))
        elif _ROW.match(text):
            if not test:
                raise LogError(path, number, text, "a line `# Collective test starting: NAME_perf` above the results")
            if test == "all_reduce":
                size_bytes, bandwidth = _bandwidth(path, number, text.split())
                bandwidths[size_bytes] = bandwidth
    return FabricLog(len(ranks), bandwidths)


def _bandwidth(path: Path | str, number: int, cells: list[str]) -> tuple[int, float]:
    """Return size and bus bandwidth of a row: time, algorithm bandwidth and bus bandwidth follow each other."""
    figures = [cells[i : i + 3] for i in (-8, -4)] if len(cells) in (11, 12, 13) else []
    try:
        time_us, _, bandwidth = map(float, next(group for group in figures if group[0] != "N/A"))
        if not (time_us > 0 and math.isfinite(bandwidth)):
            raise ValueError
    except (StopIteration, ValueError):
        expected = "size, count, type[, redop][, root] and twice time, algbw, busbw, errors"
        raise LogError(path, number, " ".join(cells), expected) from None
    return int(cells[0]), bandwidth
