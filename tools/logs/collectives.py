"""What a rank sent in the counted step, from a run's collectives.csv (logs/README.md)."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

from tools.errors import LogError

COLUMNS = ["step", "collective", "group", "dtype", "bytes", "calls"]
# What a ring of n ranks sends per rank, in parts (n - 1) / n of the message. An all-reduce is a reduce-scatter and an
# all-gather. Of a broadcast and a reduce: the mean over the ranks, as the ends of their chain send less.
PARTS = {"all-reduce": 2, "all-gather": 1, "reduce-scatter": 1, "broadcast": 1, "reduce": 1, "all-to-all": 1}


@dataclass(frozen=True)
class Collective:
    """A kind of call of one rank in one step.

    Attributes:
        name: all-reduce, all-gather, reduce-scatter, ...
        ranks: those that take part.
        message_bytes: the whole message of one call: what an all-gather leaves, what a reduce-scatter begins with.
    """

    name: str
    ranks: tuple[int, ...]
    message_bytes: int
    calls: int

    @property
    def sent_bytes(self) -> float:
        """Per rank, of all calls, by a ring. A kind without a formula has sent its whole message."""
        ranks = len(self.ranks)
        parts = PARTS[self.name] * (ranks - 1) / ranks if self.name in PARTS else 1
        return parts * self.message_bytes * self.calls


def read(path: Path) -> list[Collective]:
    """Parse collectives.csv.

    Raises:
        LogError: the header or a line is not as in the contract.
    """
    with path.open(newline="") as file:
        lines = csv.reader(file)
        header = next(lines, [])
        if header != COLUMNS:
            raise LogError(path, 1, ",".join(header), f"the header {','.join(COLUMNS)}")
        found = []
        for fields in lines:
            try:
                _, name, group, _, message_bytes, calls = fields
                ranks = tuple(map(int, group.split()))
                found.append(Collective(name, ranks, int(message_bytes), int(calls)))
            except ValueError:
                expected = "step, collective, ranks, dtype, bytes of one call, calls"
                raise LogError(path, lines.line_num, ",".join(fields), expected) from None
            if not ranks:
                raise LogError(path, lines.line_num, ",".join(fields), "the ranks of the group")
        return found
