"""Bandwidth of collectives by message size from an nccl-tests log (all_reduce_perf, all_gather_perf, …).

The fabric check writes the same format (custom_model/fabric_check.py). One file may hold several tests, one after the
other; a line `# Collective test starting: all_gather_perf` names each, without one it is all_reduce_perf, whose older
versions print no name. `GB` are 10^9 bytes.
Source: https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from tools.errors import LogError

_START = re.compile(r"#\s*Collective test starting:\s*(\w+?)_perf")
_RANK = re.compile(r"#\s+Rank\s+(\d+)\s.*?\bon\s+(\S+)\s+device")
# size, count, type, redop[, root], then twice time, algbw, busbw, errors: out of place, in place.
_ROW = re.compile(r"\d+\s+\d+\s+[a-z]\w*\s+[a-z]\w*\s")


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


def read(path: Path) -> FabricLog:
    """Parse one log; lines of NCCL itself between the others are passed over, so is a last line that is cut off.

    Raises:
        LogError: a line of results does not hold the numbers it should.
    """
    log, name = FabricLog(), "all_reduce"
    text = path.read_text(encoding="utf-8", errors="replace")
    lines = text.splitlines()
    complete = len(lines) if text.endswith("\n") else len(lines) - 1
    for number, line in enumerate(lines[:complete], 1):
        if match := _START.match(line):
            name = match[1]
        elif match := _RANK.match(line):
            log.ranks.add(int(match[1]))
            log.hosts.add(match[2])
        elif _ROW.match(line.strip()):
            log.collectives.setdefault(name, []).append(_row(path, number, line))
    return log


def _row(path: Path, number: int, line: str) -> Bandwidth:
    cells = line.split()
    figures = [cells[i : i + 3] for i in (-8, -4)] if len(cells) in (12, 13) else []
    try:
        measured = next(group for group in figures if group[0] != "N/A")
        return Bandwidth(int(cells[0]), *map(float, measured))
    except (StopIteration, ValueError):
        expected = "size, count, type, redop[, root] and twice time, algbw, busbw, errors"
        raise LogError(path, number, line.strip(), expected) from None
