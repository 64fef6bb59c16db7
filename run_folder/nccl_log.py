"""Bandwidth of collectives by message size from an nccl-tests log (all_reduce_perf, all_gather_perf, …).

The fabric check writes the same format (custom_model/fabric_check.py). One file may hold several tests, one after the
other. A line `# Collective test starting: all_gather_perf` names each; older versions print none, and then the columns
and the bandwidths tell which it is. `GB` are 10^9 bytes. mpirun may have put `[1,0]<stdout>:` before each line, srun
`0: `.
NCCL_DEBUG=INFO may have cut a row in two: a test prints its first columns before the measurement, the others after it.
Sources: https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md, nccl-tests issues 107 and 294, nccl 644.
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
_FIGURES = re.compile(r"(?:\s+(?:[-+.e\d]+|N/A))+\s*")
_LONGEST = 1000  # characters of a line; those of a test are shorter
_TAG = re.compile(r"\[\d+,\d+\]<std(?:out|err)>:|^\s*\d+: ")
_OF_NCCL = re.compile(r":\d+:\d+ \[\d+\] (?:\S+ )?NCCL ")  # after the host


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
        LogError: a line of results does not hold the numbers it should.
    """
    log = FabricLog()
    tests: list[tuple[str, list[list[str]]]] = [("", [])]  # name, or "" if none was printed; cells of its rows
    lines = read_plain(path).decode("utf-8", "replace").split("\n")[:-1]  # after the last line end it is cut off
    begun: list[str] = []  # the cells of a row that NCCL's lines interrupt
    for number, tagged in enumerate(lines, 1):
        line, interrupted = _without_nccl(_TAG.sub("", tagged[:_LONGEST]), log.hosts)
        text = line.strip()
        if match := _START.match(text):
            tests.append((match[1], []))
        elif text.startswith("# nThread") and tests[-1][1]:
            tests.append(("", []))
        elif match := _RANK.match(text):
            log.ranks.add(int(match[1]))
            log.hosts.add(match[2])
        elif _ROW.match(text) or (begun and _FIGURES.fullmatch(line)):
            begun += line.split()
            if not interrupted:
                tests[-1][1].append(begun)
                _bandwidth(path, number, begun)
                begun = []
    for name, rows in tests:
        if rows:
            measured = [_bandwidth(path, None, row) for row in rows]
            name = name or _unnamed(rows[0], max(measured, key=lambda row: row.size_bytes), log.world_size)
            log.collectives.setdefault(name, []).extend(measured)
    return log


def _without_nccl(line: str, hosts: set[str]) -> tuple[str, bool]:
    """The line up to what NCCL wrote into it, and whether it did: `… sum      -1node1:18075:18075 [0] NCCL INFO …`."""
    match = _OF_NCCL.search(line)
    if not match:
        return line, False
    before = line[: match.start()]
    ends = (before[place:] for place in range(max(0, len(before) - 255), len(before)))
    return before.removesuffix(next((end for end in ends if end in hosts), before)), True


def _bandwidth(path: Path | str, number: int | None, cells: list[str]) -> Bandwidth:
    figures = [cells[i : i + 3] for i in (-8, -4)] if len(cells) in (11, 12, 13) else []
    try:
        measured = next(group for group in figures if group[0] != "N/A")
        found = Bandwidth(int(cells[0]), *map(float, measured))
        if not (found.time_us > 0 and math.isfinite(found.busbw_gb_per_s)):
            raise ValueError
        # Of a row that has lost a cell the others are taken for their neighbours.
        if not math.isclose(found.algbw_gb_per_s, found.size_bytes / found.time_us / 1e3, rel_tol=0.05, abs_tol=0.01):
            raise ValueError
    except (StopIteration, ValueError):
        expected = "size, count, type[, redop][, root] and twice time, algbw = size / time, busbw, errors"
        raise LogError(path, number, " ".join(cells), expected) from None
    return found


def _unnamed(cells: list[str], largest: Bandwidth, ranks: int) -> str:
    """Which test it is that does not say so, from the columns of a row and, of the largest message, busbw / algbw."""
    described = cells[3:-8]  # [redop][, root]
    rooted = described[-1:] not in ([], ["-1"]) and described[-1].isdigit()
    if not described or not described[0].isalpha() or described[0] == "none":
        return "broadcast, gather or scatter" if rooted else "all_gather or alltoall"
    if rooted:
        return "reduce"
    if not ranks:
        return "all_reduce or reduce_scatter"
    factor = largest.busbw_gb_per_s / largest.algbw_gb_per_s if largest.algbw_gb_per_s else 0.0
    # Half of an all-reduce's factor; of small messages the figures are rounded to 0.
    return "reduce_scatter" if ranks > 1 and 0 < factor < 1.5 * (ranks - 1) / ranks else "all_reduce"
