"""What a rank sent in the counted step, from a run's collectives.csv (logs/README.md)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from run_folder.safe_open import read_plain
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
    lines = read_plain(path).decode("utf-8", "replace").splitlines()
    if lines[:1] != [",".join(COLUMNS)]:
        raise LogError(path, 1, "".join(lines[:1]), f"the header {','.join(COLUMNS)}")
    found = []
    for number, line in enumerate(lines[1:], 2):
        try:
            _, name, group, _, message_bytes, calls = line.split(",")
            ranks = tuple(map(int, group.split()))
            found.append(Collective(name, ranks, int(message_bytes), int(calls)))
        except ValueError:
            raise LogError(path, number, line, "step, collective, ranks, dtype, bytes of one call, calls") from None
        if not ranks:
            raise LogError(path, number, line, "the ranks of the group")
    return found
