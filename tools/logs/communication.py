"""Table 21: what a step communicates, as counted (collectives.csv) and as the formulas of the ZeRO paper predict it.

Rajbhandari et al. 2020, arXiv:1910.02054, section 7: an all-reduce costs 2P, an all-gather and a reduce-scatter P each,
with P the bytes of the parameters; a ring of N ranks sends (N - 1) / N of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from run_folder.safe_open import read_plain
from tools.errors import LogError, UnavailableError
from tools.logs import dimension_traffic
from tools.logs.run import Run

COLUMNS = ["step", "rank", "collective", "group", "peer", "dtype", "bytes", "calls"]
OLDER_COLUMNS = ["step", "collective", "group", "dtype", "bytes", "calls"]  # of rank 0
# What a ring of n ranks sends per rank, in parts (n - 1) / n of the message. An all-reduce is a reduce-scatter and an
# all-gather. Of a broadcast and a reduce: the mean over the ranks, as the ends of their chain send less.
_PARTS = {"all-reduce": 2, "all-gather": 1, "reduce-scatter": 1, "broadcast": 1, "reduce": 1, "all-to-all": 1}
_PARTS |= {"receive": 0}  # is another rank's send
_NAMED = ("all-reduce", "all-gather", "reduce-scatter")
_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}


@dataclass(frozen=True)
class Collective:
    """A kind of call of one rank in one step.

    Attributes:
        name: all-reduce, all-gather, reduce-scatter, ...
        ranks: those that take part.
        rank, peer: whose call it is, and the rank that a send goes to or a receive comes from.
        message_bytes: the whole message of one call: what an all-gather leaves, what a reduce-scatter begins with.
    """

    name: str
    ranks: tuple[int, ...]
    message_bytes: int
    calls: int
    rank: int = 0
    peer: int | None = None

    @property
    def sent_bytes(self) -> float:
        """Per rank, of all calls, by a ring. A kind without a formula has sent its whole message."""
        ranks = len(self.ranks)
        parts = _PARTS[self.name] * (ranks - 1) / ranks if self.name in _PARTS else 1
        return parts * self.message_bytes * self.calls


def read(path: Path) -> list[Collective]:
    """What the ranks called in the counted step, from collectives.csv (logs/README.md).

    Raises:
        LogError: the header or a line is not as in the contract.
    """
    lines = read_plain(path).decode("utf-8", "replace").splitlines()
    columns = next((some for some in (COLUMNS, OLDER_COLUMNS) if lines[:1] == [",".join(some)]), None)
    if not columns:
        raise LogError(path, 1, "".join(lines[:1]), f"the header {','.join(COLUMNS)}")
    found = []
    for number, line in enumerate(lines[1:], 2):
        try:
            row = {"rank": "0", "peer": ""} | dict(zip(columns, line.split(","), strict=True))
            ranks, peer = tuple(map(int, row["group"].split())), int(row["peer"]) if row["peer"] else None
            sizes = int(row["bytes"]), int(row["calls"]), int(row["rank"])
            found.append(Collective(row["collective"], ranks, *sizes, peer))
        except ValueError:
            raise LogError(path, number, line, f"{', '.join(columns)}, bytes those of one call") from None
        if not ranks:
            raise LogError(path, number, line, "the ranks of the group")
        if peer is None and found[-1].name == "send":
            raise LogError(path, number, line, "the rank that a send goes to in column peer")
    return found


def counted(run: Run) -> dict[str, float]:
    """What a rank called and sent in the counted step, that of the largest; {} where nothing was counted.

    A node's figure is what it sends to the next one; of a run on one node, as if each half of its ranks were a node. A
    ring in the order of the ranks leaves a node by one link, which carries what each rank sends. Groups that have fewer
    ranks on the node run side by side. A send leaves it if the peer is elsewhere.
    """
    if "collectives.csv" not in run.files:
        return {}
    found = [one for one in read(run.folder / "collectives.csv") if len(one.ranks) > 1]
    of_ranks = [[one for one in found if one.rank == rank] for rank in {one.rank for one in found}]

    def largest(calls: Callable[[Collective], float]) -> float:
        return max((sum(map(calls, of_rank)) for of_rank in of_ranks), default=0)

    kinds = {name: largest(lambda one, name=name: one.calls * (one.name == name)) for name in _NAMED}
    world_size, nodes = run.world_size or 1, run.record.nodes or 1
    on_first = world_size // nodes if nodes > 1 else world_size // 2
    between = 0.0
    for one in found:
        here = sum(rank < on_first for rank in one.ranks)
        if one.name == "send":
            between += one.sent_bytes * (one.rank < on_first <= one.peer)
        elif one.rank == 0 and 0 < here < len(one.ranks):
            between += one.sent_bytes * on_first / here
    return kinds | {
        "sends": largest(lambda one: one.calls * (one.name == "send")),
        "other": largest(lambda one: one.calls * (one.name not in (*_NAMED, "send", "receive"))),
        "sent_mib": largest(lambda one: one.sent_bytes) / 2**20,
        "between_nodes_mib": between / 2**20,
    }


def predicted(run: Run) -> dict[str, float]:
    """What a rank would send by the paper's formulas, or those of dimensions/; {} where the record lacks something."""
    record, sharding, accumulation = run.record, run.record.sharding, run.settings.get("grad_acc")
    if sharding.method in dimension_traffic.FORMULAS:
        return {"sent_mib": dimension_traffic.sent_bytes(record) / 2**20}
    if not all([record.model.parameters, record.precision in _BYTES, sharding.method, accumulation, run.world_size]):
        return {}
    messages = messages_of(vars(sharding), run.world_size, accumulation)
    return {"sent_mib": sum(messages) * record.model.parameters * _BYTES[record.precision] / 2**20}


def messages_of(sharding: dict[str, Any], world_size: int, accumulation: int) -> list[float]:
    """The parts of P that a rank sends in a step: gathering weights, scattering gradients, adding up copies.

    Args: sharding: "all_reduces": stages 1 and 2 scatter gradients by an all-reduce, as DeepSpeed does by default.

    Raises:
        UnavailableError: there is no formula for the method.
    """
    replicas = sharding.get("replicas") or 1
    if world_size % replicas:
        raise UnavailableError(f"{replicas} copies on {world_size} ranks")
    shards = world_size // replicas
    ring = (shards - 1) / shards
    scatter = ring * (2 if sharding.get("all_reduces") else 1)
    match sharding["method"]:
        case "ddp":
            return [2 * ring]
        case "zero1":  # gradients once, updated weights once
            return [ring, scatter]
        case "zero2":  # gradients in every micro-batch
            return [ring, accumulation * scatter]
        case "zero3":  # and weights for each forward and each backward pass
            return [2 * accumulation * ring, accumulation * ring]
        case "fsdp2":  # gradients once; weights as in stage 3, or kept from the forward to the backward pass
            gathers = (2 if sharding.get("reshard_after_forward") else 1) * accumulation
            # HYBRID_SHARD: each rank adds up its part of the gradients with the same part of the other copies.
            return [gathers * ring, ring, 2 * (replicas - 1) / replicas / shards]
        case method:
            raise UnavailableError(f"no formula for {method}")
