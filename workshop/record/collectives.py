"""collectives.csv: the ranks' collectives in one step, written by the job and read by the tools; bytes of a ring."""

import csv
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from workshop.record.errors import LogError, read_plain
from workshop.record.schema import typed

COLUMNS = ["step", "rank", "collective", "group", "peer", "dtype", "bytes", "calls"]
OLDER_COLUMNS = ["step", "collective", "group", "dtype", "bytes", "calls"]  # of rank 0
# How often each rank of a ring of n sends (n - 1) / n of the message. An all-reduce is a reduce-scatter and an
# all-gather. For broadcast and reduce: the mean over the ranks, as the ends of their chain send less.
_PARTS = {"all-reduce": 2, "all-gather": 1, "reduce-scatter": 1, "broadcast": 1, "reduce": 1, "all-to-all": 1}
_PARTS |= {"receive": 0}  # counted as another rank's send


def bus_factor(name: str, ranks: int) -> float:
    """Return the bytes that a rank sends, over those of the message; 1 for a kind without a formula.

    It is also bus bandwidth / algorithm bandwidth:
    https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md.
    """
    return _PARTS[name] * (ranks - 1) / ranks if name in _PARTS else 1


@dataclass(frozen=True)
class Collective:
    """Equal calls of one rank in one step.

    Attributes:
        name: all-reduce, all-gather, reduce-scatter, ...
        ranks: of the group.
        rank, peer: the caller, and the rank that a send goes to or a receive comes from.
        message_bytes: the whole message of one call: an all-gather's result, a reduce-scatter's input.
    """

    name: str
    ranks: tuple[int, ...]
    message_bytes: int
    calls: int = 1
    rank: int = 0
    peer: int | None = None
    dtype: str = ""

    @property
    def sent_bytes(self) -> float:
        """Bytes that the rank sends in all calls, by a ring."""
        return bus_factor(self.name, len(self.ranks)) * self.message_bytes * self.calls


def write(path: Path, step: int, calls_of_ranks: Sequence[Counter[Collective]]) -> None:
    """Write one line per rank and kind of call, the largest messages first (logs/README.md)."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for rank, calls in enumerate(calls_of_ranks):
            for call, number in sorted(calls.items(), key=lambda item: (-item[0].message_bytes, item[0].name)):
                group = " ".join(map(str, call.ranks))
                writer.writerow([step, rank, call.name, group, call.peer, call.dtype, call.message_bytes, number])


def read(path: Path) -> list[Collective]:
    """Return the collectives of the counted step.

    Raises:
        LogError: the header or a line is not as in the contract.
    """
    lines = read_plain(path).decode("utf-8", "replace").splitlines()
    columns = next((some for some in (COLUMNS, OLDER_COLUMNS) if lines[:1] == [",".join(some)]), None)
    if not columns:
        raise LogError(path, 1, "".join(lines[:1]), f"the header {','.join(COLUMNS)}")
    calls = []
    for number, line in enumerate(lines[1:], 2):
        try:
            row = {"rank": "0", "peer": ""} | dict(zip(columns, line.split(","), strict=True))
            ranks, peer = tuple(map(int, row["group"].split())), int(row["peer"]) if row["peer"] else None
            sizes = (typed(int(row[name]), int) for name in ("bytes", "calls", "rank"))
            calls.append(Collective(row["collective"], ranks, *sizes, peer, row["dtype"]))
        except ValueError:
            raise LogError(path, number, line, f"{', '.join(columns)}, bytes those of one call") from None
        if not ranks:
            raise LogError(path, number, line, "the ranks of the group")
        if peer is None and calls[-1].name == "send":
            raise LogError(path, number, line, "the rank that a send goes to in column peer")
    return calls
