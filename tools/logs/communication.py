"""Table 21: what a step communicates, as counted and as the formulas of the ZeRO paper predict it.

Rajbhandari et al. 2020, arXiv:1910.02054, section 7: an all-reduce costs 2P, an all-gather and a reduce-scatter P each,
with P the bytes of the parameters; a ring of N ranks sends (N - 1) / N of it.
"""

from __future__ import annotations

from typing import Any

from tools.errors import UnavailableError
from tools.logs import collectives
from tools.logs.folder import RunFolder

_NAMED = ("all-reduce", "all-gather", "reduce-scatter")
_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}


def counted(run: RunFolder) -> dict[str, float]:
    """What a rank called and sent in the counted step; {} where nothing was counted.

    A node's figure is what it sends to the next one; of a run on one node, as if each half of its ranks were a node. A
    ring in the order of the ranks leaves a node by one link, which carries what each rank sends. Groups that have fewer
    ranks on the node run side by side.
    """
    if "collectives.csv" not in run.files:
        return {}
    found = collectives.read(run.folder / "collectives.csv")
    calls = {name: sum(one.calls for one in found if one.name == name) for name in _NAMED}
    world_size, nodes = run.facts["world_size"] or 1, run.facts["nodes"] or 1
    on_first = world_size // nodes if nodes > 1 else world_size // 2
    inside = [sum(rank < on_first for rank in one.ranks) for one in found]
    between = [
        one.sent_bytes * on_first / here for one, here in zip(found, inside, strict=True) if 0 < here < len(one.ranks)
    ]
    return calls | {
        "other": sum(one.calls for one in found) - sum(calls.values()),
        "sent_mib": sum(one.sent_bytes for one in found) / 2**20,
        "between_nodes_mib": sum(between) / 2**20,
    }


def predicted(run: RunFolder) -> dict[str, float]:
    """What a rank would send by the paper's formulas; {} where the record lacks something."""
    record = run.record
    parameters, precision = (record.get("model") or {}).get("parameters"), record.get("precision")
    sharding, accumulation = record.get("sharding") or {}, (record.get("settings") or {}).get("grad_acc")
    world_size = run.facts["world_size"]
    if not (parameters and precision in _BYTES and sharding.get("method") and accumulation and world_size):
        return {}
    messages = messages_of(sharding, world_size, accumulation)
    return {"sent_mib": sum(messages) * parameters * _BYTES[precision] / 2**20}


def messages_of(sharding: dict[str, Any], world_size: int, accumulation: int) -> list[float]:
    """The parts of P that a rank sends in a step: gathering weights, scattering gradients, adding up copies.

    Raises:
        UnavailableError: there is no formula for the method.
    """
    replicas = sharding.get("replicas") or 1
    if world_size % replicas:
        raise UnavailableError(f"{replicas} copies on {world_size} ranks")
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
