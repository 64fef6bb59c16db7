"""Bandwidth of collectives by message size, as nccl-tests print it (all_reduce_perf, all_gather_perf, …).

The fabric check (custom_model/fabric_check.py) writes a line `# Collective test starting: all_gather_perf` before each
test's results, as newer versions of nccl-tests do. `GB` are 10^9 bytes.
Source: https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from pathlib import Path

from run_folder.errors import LogError
from run_folder.safe_open import read_plain

_START = re.compile(r"#\s*Collective test starting:\s*(\w+?)_perf")
_RANK = re.compile(r"#\s+Rank\s+(\d{1,9})\s.*?\bon\s+(\S+)\s+device")
# size, count, type[, redop][, root], then twice time, algbw, busbw, errors: out of place, in place.
_ROW = re.compile(r"\d+\s+\d+\s+[a-z]\w*(?:\s|$)", re.ASCII)


@dataclass(frozen=True)
class Bandwidth:
    """One message size. Attributes: size_bytes; time_us; algbw_gb_per_s = size / time; busbw_gb_per_s.

    The bus bandwidth is what the links carry: algbw x 2(n-1)/n for an all-reduce of n ranks, algbw x (n-1)/n for an
    all-gather or a reduce-scatter; it does not depend on n and so can be compared with the hardware's.
    """

    size_bytes: int
    time_us: float
    algbw_gb_per_s: float
    busbw_gb_per_s: float


@dataclass
class FabricLog:
    """Attributes: ranks: their numbers as listed; hosts: their hosts; collectives: rows by name ("all_reduce")."""

    ranks: set[int] = field(default_factory=set)
    hosts: set[str] = field(default_factory=set)
    collectives: dict[str, list[Bandwidth]] = field(default_factory=dict)

    @property
    def world_size(self) -> int:
        """Ranks of one world. Processes that are each a world of their own are all called rank 0 (erratum K12)."""
        return len(self.ranks)

    @property
    def allreduce_gb_per_s(self) -> float | None:
        """Bus bandwidth of the all-reduce of the largest message; None if there is none."""
        rows = [row for row in self.collectives.get("all_reduce", []) if row.size_bytes]
        return max(rows, key=lambda row: row.size_bytes).busbw_gb_per_s if rows else None


def read(path: Path | str) -> FabricLog:
    """Parse one log; lines of NCCL itself between the others are passed over, so is a last line that is cut off.

    Raises:
        LogError: a line of results does not hold the numbers it should, or no line above names its test.
    """
    log = FabricLog()
    rows: list[Bandwidth] | None = None
    lines = read_plain(path).decode("utf-8", "replace").split("\n")[:-1]  # after the last line end it is cut off
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if match := _START.match(text):
            rows = log.collectives.setdefault(match[1], [])
        elif match := _RANK.match(text):
            log.ranks.add(int(match[1]))
            log.hosts.add(match[2])
        elif _ROW.match(text):
            if rows is None:
                raise LogError(path, number, text, "a line `# Collective test starting: NAME_perf` above the results")
            rows.append(_bandwidth(path, number, text.split()))
    log.collectives = {name: rows for name, rows in log.collectives.items() if rows}
    return log


def _bandwidth(path: Path | str, number: int, cells: list[str]) -> Bandwidth:
    figures = [cells[i : i + 3] for i in (-8, -4)] if len(cells) in (11, 12, 13) else []
    try:
        measured = next(group for group in figures if group[0] != "N/A")
        found = Bandwidth(int(cells[0]), *map(float, measured))
        if not (found.time_us > 0 and math.isfinite(found.busbw_gb_per_s)):
            raise ValueError
    except (StopIteration, ValueError):
        expected = "size, count, type[, redop][, root] and twice time, algbw = size / time, busbw, errors"
        raise LogError(path, number, " ".join(cells), expected) from None
    return found
