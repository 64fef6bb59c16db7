"""Table 21: what a step communicates, as counted and as the formulas of the ZeRO paper predict it.

Rajbhandari et al. 2020, arXiv:1910.02054, section 7: an all-reduce costs 2P, an all-gather and a reduce-scatter P each,
with P the bytes of the parameters; a ring of N ranks sends (N - 1) / N of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tools.errors import UnavailableError
from tools.logs.runs import Run

_NAMED = ("all-reduce", "all-gather", "reduce-scatter")
_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}


def calls(*names: str) -> Callable[[Run], float | None]:
    """How often a rank calls these collectives in the counted step; without names: all that have no column."""

    def read(run: Run) -> float | None:
        if run.collectives is None:
            return None
        return sum(
            found.calls for found in run.collectives if (found.name in names if names else found.name not in _NAMED)
        )

    return read


def sent_mib(run: Run) -> float | None:
    """What a rank sends in the counted step, MiB."""
    return None if run.collectives is None else sum(found.sent_bytes for found in run.collectives) / 2**20


def between_nodes_mib(run: Run) -> float | None:
    """What a node sends to the next one; of a run on one node, as if each half of its ranks were a node, MiB.

    A ring in the order of the ranks leaves a node by one link, which carries what each rank sends. Groups that have
    fewer ranks on the node run side by side.
    """
    if run.collectives is None:
        return None
    world_size, nodes = run.facts["world_size"], run.facts["nodes"] or 1
    on_first = world_size // nodes if nodes > 1 else world_size // 2
    total = 0.0
    for found in run.collectives:
        inside = sum(rank < on_first for rank in found.ranks)
        if 0 < inside < len(found.ranks):
            total += found.sent_bytes * on_first / inside
    return total / 2**20


def predicted_mib(run: Run) -> float | None:
    """What a rank would send by the paper's formulas, MiB."""
    record = run.record
    parameters, precision = (record.get("model") or {}).get("parameters"), record.get("precision")
    sharding, accumulation = record.get("sharding") or {}, (record.get("settings") or {}).get("grad_acc")
    if not (parameters and precision in _BYTES and sharding.get("method") and accumulation):
        return None
    messages = messages_of(sharding, run.facts["world_size"], accumulation)
    return sum(messages) * parameters * _BYTES[precision] / 2**20


def messages_of(sharding: dict[str, Any], world_size: int, accumulation: int) -> list[float]:
    """The parts of P that a rank sends in a step: gathering weights, scattering gradients, adding up copies.

    Raises:
        UnavailableError: there is no formula for the method.
    """
    replicas = sharding.get("replicas", 1)
    shards = world_size // replicas
    ring = (shards - 1) / shards
    match sharding["method"]:
        case "ddp":
            return [2 * ring]
        case "zero1":  # gradients once, updated weights once
            return [ring, ring]
        case "zero2":  # gradients in every micro-batch
            return [accumulation * ring, ring]
        case "zero3":  # and weights for each forward and each backward pass
            return [2 * accumulation * ring, accumulation * ring]
        case "fsdp2":  # gradients once; weights as in stage 3, or kept from the forward to the backward pass
            gathers = (2 if sharding.get("reshard_after_forward") else 1) * accumulation
            # HYBRID_SHARD: each rank adds up its part of the gradients with the same part of the other copies.
            return [gathers * ring, ring, 2 * (replicas - 1) / replicas / shards]
        case method:
            raise UnavailableError(f"no formula for {method}")
