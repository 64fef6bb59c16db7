"""nccl.log: bus bandwidth of the all-reduce by message size, as nccl-tests' all_reduce_perf prints it.

custom_model/fabric_check.py writes it. `GB` are 10^9 bytes.
Source: https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import NamedTuple

from workshop.record.errors import LogError, read_plain

_RANK = re.compile(r"#\s+Rank\s+(\d{1,9})\s.*?\bon\s+\S+\s+device")
_COLUMNS = "size, count, type, redop[, root] and twice (out of place, in place) time, algbw, busbw, errors"
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
        LogError: a line of results does not hold the numbers it should.
    """
    ranks, bandwidths = set[int](), dict[int, float]()
    lines = read_plain(path).decode("utf-8", "replace").split("\n")[:-1]  # after the last line end it is cut off
    for number, line in enumerate(map(str.strip, lines), 1):
        if match := _RANK.match(line):
            ranks.add(int(match[1]))
        elif _ROW.match(line):
            try:
                size, *cells = line.split()
                time_us, _, bandwidth, _ = cells[-4:] if cells[-8] == "N/A" else cells[-8:-4]
                if not (float(time_us) > 0 and math.isfinite(float(bandwidth))):
                    raise ValueError
            except (IndexError, ValueError):
                raise LogError(path, number, " ".join(line.split()), _COLUMNS) from None
            bandwidths[int(size)] = float(bandwidth)
    return FabricLog(len(ranks), bandwidths)
