"""Table 21: what a step communicates, as counted (collectives.csv) and as the formulas of the ZeRO paper predict it.

Rajbhandari et al. 2020, arXiv:1910.02054, section 7: an all-reduce costs 2P, an all-gather and a reduce-scatter P each,
with P the bytes of the parameters; a ring of N ranks sends (N - 1) / N of it.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from tools.errors import UnavailableError
from tools.logs import dimension_traffic
from tools.logs.run import Run
from workshop.record.collectives import read

_KINDS = ("all-reduce", "all-gather", "reduce-scatter", "send", "other")
_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}


def counted_traffic(run: Run) -> dict[str, float]:
    """What a rank called and sent in the counted step, that of the largest; {} where nothing was counted.

    A node's figure is what it sends to the next one; of a run on one node, as if each half of its ranks were a node. A
    ring in the order of the ranks leaves a node by one link, which carries what each rank sends. Groups that have fewer
    ranks on the node run side by side. A send leaves it if the peer is elsewhere.
    """
    if "collectives.csv" not in run.files:
        return {}
    world_size, nodes = run.world_size or 1, run.record.nodes or 1
    on_first = world_size // nodes if nodes > 1 else world_size // 2
    calls, sent, between = {kind: Counter() for kind in _KINDS}, Counter(), 0.0  # by rank
    for one in read(run.folder / "collectives.csv"):
        here = sum(rank < on_first for rank in one.ranks)
        if len(one.ranks) > 1 and one.name != "receive":
            calls[one.name if one.name in _KINDS else "other"][one.rank] += one.calls
            sent[one.rank] += one.sent_bytes
        if one.name == "send":
            between += one.sent_bytes * (one.rank < on_first <= one.peer)
        elif one.rank == 0 and 0 < here < len(one.ranks):
            between += one.sent_bytes * on_first / here
    most = {kind: max(of_ranks.values(), default=0) for kind, of_ranks in calls.items()}
    return most | {"sent_mib": max(sent.values(), default=0) / 2**20, "between_nodes_mib": between / 2**20}


def predicted_traffic(run: Run) -> dict[str, float]:
    """What a rank would send by the paper's formulas, or of further/dimensions/; {} where something is not recorded."""
    record, sharding, accumulation = run.record, run.record.sharding, run.settings.get("grad_acc")
    if sharding.method in dimension_traffic.FORMULAS:
        return {"sent_mib": dimension_traffic.sent_bytes(record) / 2**20}
    if not all([record.model.parameters, record.precision in _BYTES, sharding.method, accumulation, run.world_size]):
        return {}
    messages = messages_of(vars(sharding), run.world_size, accumulation)
    weights = sum(messages) * record.model.parameters * _BYTES[record.precision]
    products = 0.0
    if sharding.method == "fsdp2":
        sizes = [tuple(map(int, size.split("x"))) for size in sharding.matrices or ()]
        shards = run.world_size // (sharding.replicas or 1)
        products = sum(muon_numbers(*size) for size in sizes) * _BYTES["bf16"] * (shards - 1) / shards
    return {"sent_mib": (weights + products) / 2**20}


def muon_numbers(rows: int, columns: int) -> int:
    """Numbers that torch.optim.Muon passes around a ring in a step for a DTensor of which each rank has some rows.

    Each of five Newton-Schulz iterations has three products. Of a wide matrix a rank needs the whole matrix in two of
    them, and rows x rows of its products in one: all-gathers. A tall one is transposed, so two are sums over the ranks
    of columns x columns: all-reduces, which pass twice. Source: torch/optim/_muon.py, and DTensor's choice in 2.13.
    """
    return 5 * (2 * rows * columns + rows * rows if rows <= columns else 2 * 2 * columns * columns)


def messages_of(sharding: dict[str, Any], world_size: int, accumulation: int) -> list[float]:
    """The parts of P that a rank sends in a step: gathering weights, scattering gradients, adding up copies.

    Args: sharding: "all_reduces": stages 1 and 2 scatter gradients by an all-reduce, as DeepSpeed does by default;
        "kept": the share of the weights that stage 3 keeps from the forward to the backward pass.

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
            return [(2 - sharding.get("kept", 0)) * accumulation * ring, accumulation * ring]
        case "fsdp2":  # gradients once; weights as in stage 3, or kept from the forward to the backward pass
            gathers = (2 if sharding.get("reshard_after_forward") else 1) * accumulation
            # HYBRID_SHARD: each rank adds up its part of the gradients with the same part of the other copies.
            return [gathers * ring, ring, 2 * (replicas - 1) / replicas / shards]
        case method:
            raise UnavailableError(f"no formula for {method}")
