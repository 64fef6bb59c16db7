"""A step's traffic, counted (collectives.csv) and by formula: for Tables 21 and 25 and the planner's layouts.

Of data parallelism by the ZeRO paper, Rajbhandari et al. 2020, arXiv:1910.02054, section 7: an all-reduce costs 2P, an
all-gather and a reduce-scatter P each, with P the bytes of the parameters; a ring of N ranks sends (N - 1) / N of it.
Of tensor, context, pipeline and expert parallelism as the scripts in further/dimensions/ do it; A is what passes
between layers: rows x length x hidden size, of a micro-batch.
"""

from collections import Counter
from functools import cache
from typing import Any

from tools.errors import UnavailableError
from tools.logs.run import Run
from workshop.record.collectives import read
from workshop.record.schema import RunRecord

_NAMES = ("all-reduce", "all-gather", "reduce-scatter", "send", "other")
_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}
_FP32, _INT64 = 4, 8


@cache
def counted_traffic(run: Run) -> dict[str, float]:
    """The calls and MiB of the rank with the most in the counted step; {} where nothing was counted.

    A node's figure is what it sends to the next one; of a run on one node, as if each half of its ranks were a node. A
    ring in the order of the ranks leaves a node by one link, which carries what each rank sends. Groups that have fewer
    ranks on the node run side by side. A send leaves it if the peer is elsewhere.
    """
    if "collectives.csv" not in run.files:
        return {}
    world_size, nodes = run.world_size or 1, run.record.nodes or 1
    on_first = world_size // nodes if nodes > 1 else world_size // 2
    calls, sent, between = {name: Counter() for name in _NAMES}, Counter(), 0.0  # by rank
    for call in read(run.folder / "collectives.csv"):
        on_node = sum(rank < on_first for rank in call.ranks)
        if len(call.ranks) > 1 and call.name != "receive":
            calls[call.name if call.name in _NAMES else "other"][call.rank] += call.calls
            sent[call.rank] += call.sent_bytes
        if call.name == "send":
            between += call.sent_bytes if call.rank < on_first <= call.peer else 0
        elif call.rank == 0 and 0 < on_node < len(call.ranks):
            between += call.sent_bytes * on_first / on_node
    most = {name: max(of_ranks.values(), default=0) for name, of_ranks in calls.items()}
    return most | {"sent_mib": max(sent.values(), default=0) / 2**20, "between_nodes_mib": between / 2**20}


@cache
def predicted_sent_mib(run: Run) -> float | None:
    """What a rank sends by the formulas (MiB); None where something is not recorded."""
    record, sharding, accumulation = run.record, run.record.sharding, run.settings.get("grad_acc")
    if sharding.method in _FORMULAS:
        return sent_bytes(record) / 2**20
    if not all([record.model.parameters, record.precision in _BYTES, sharding.method, accumulation, run.world_size]):
        return None
    messages = messages_of(vars(sharding), run.world_size, accumulation)
    weights = sum(messages) * record.model.parameters * _BYTES[record.precision]
    products = 0.0
    if sharding.method == "fsdp2":
        sizes = [tuple(map(int, size.split("x"))) for size in sharding.matrices or ()]
        shards = run.world_size // (sharding.replicas or 1)
        products = sum(muon_numbers(*size) for size in sizes) * _BYTES["bf16"] * (shards - 1) / shards
    return (weights + products) / 2**20


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


# ---- the other dimensions ----


def sent_bytes(record: RunRecord) -> float:
    """Bytes that the largest rank sends in a run of further/dimensions/.

    Raises:
        UnavailableError: the record lacks something, or rows have different lengths.
    """
    settings = record.settings
    if settings.get("padding") != "max_length":
        raise UnavailableError("no rows of one length")
    seen = {
        name: value
        for part in (record.model, record.sharding)
        for name, value in vars(part).items()
        if value is not None
    }
    try:
        ranks = {"dp_size": record.dp_size, "ranks": record.world_size // record.dp_size}
        # The settings have the custom model's sizes, whichever model it is.
        return _FORMULAS[record.sharding.method](settings | seen | ranks | {"width": 2 if settings["bf16"] else _FP32})
    except (KeyError, TypeError):
        raise UnavailableError("an incomplete record") from None


def sums(
    ranks: int, layers: int, positions: float, a_bytes: float, *, recomputed: bool, by_position: bool, chunked: bool
) -> float:
    """Bytes of a micro-batch: a layer adds up A twice in the forward and twice in the backward pass, each end once.

    A sum is an all-reduce; by positions a reduce-scatter and an all-gather, which send as much. Recomputing a block
    repeats its first sum, by positions both all-gathers too. The loss needs three numbers of each position.
    """
    halves = 2 * (4 * layers + 2)
    if recomputed:
        halves += (3 if by_position else 2) * layers
    loss = 2 * 3 * (2 if chunked else 1) * positions * _FP32  # in chunks it is computed twice
    return (halves * a_bytes + loss) * (ranks - 1) / ranks


def ring(ranks: int, layers: int, keys_and_values_bytes: float, recomputed: bool) -> float:
    """Bytes of a micro-batch: a rank's keys and values pass all others in each pass, and then their gradients."""
    return (4 if recomputed else 3) * layers * (ranks - 1) * keys_and_values_bytes


def shards_of_weights(ranks: int, micro_batches: int, gathered_bytes: float, held_bytes: float) -> float:
    """Bytes of a step: FSDP gathers weights for each micro-batch, and scatters the gradients once."""
    return (micro_batches * gathered_bytes + held_bytes) * (ranks - 1) / ranks


def stages(ranks: int, chunks: int, a_bytes: float, tied_bytes: float) -> float:
    """Bytes: A to the next stage, its gradient to the one before, by the rank that sends most.

    The ranks at the two ends add up a tied head's gradient, but one has no stage before it, one none after it.

    Args: chunks: stages per rank.
    """
    if ranks == 1:
        return 0
    return max((2 * chunks - 1) * a_bytes + tied_bytes, 2 * chunks * a_bytes if ranks > 2 else 0)


def _tensor(facts: dict[str, Any]) -> float:
    positions = facts["batch_size"] * facts["max_length"]
    of_micro_batch = sums(
        facts["ranks"],
        facts["layers"],
        positions,
        positions * facts["hidden_size"] * facts["width"],
        recomputed=facts["gradient_checkpointing"],
        by_position=facts["sequence_parallel"],
        chunked=0 < facts["loss_chunk"] < facts["max_length"],
    )
    held = facts["rank_parameters"] * facts["width"]
    weights = shards_of_weights(facts["dp_size"], facts["grad_acc"], 2 * held, held)
    return facts["grad_acc"] * of_micro_batch + weights


def _context(facts: dict[str, Any]) -> float:
    positions = facts["batch_size"] * facts["max_length"] / facts["ranks"]
    keys_and_values = 2 * positions * facts["key_value_size"] * facts["width"]
    passed = ring(facts["ranks"], facts["layers"], keys_and_values, facts["gradient_checkpointing"])
    return facts["grad_acc"] * passed + _all_shards(facts)


def _ulysses(facts: dict[str, Any]) -> float:
    """All-to-alls of a rank's queries, keys, values and results, and of their gradients; each keeps its own part.

    Of as many key heads as ranks, or more. DeepSpeed also gathers the positions' numbers, once for all rows.
    """
    ranks, passes = facts["ranks"], facts["layers"] * facts["grad_acc"]
    positions = facts["batch_size"] * facts["max_length"] / ranks
    numbers = 2 * (facts["attention_size"] + facts["key_value_size"]) * positions
    forward_passes = 2 if facts["gradient_checkpointing"] else 1
    exchanged = (forward_passes + 1) * numbers * facts["width"] + forward_passes * facts["max_length"] * _INT64
    return passes * exchanged * (ranks - 1) / ranks + _all_shards(facts)


def _all_shards(facts: dict[str, Any]) -> float:
    """Over all ranks: blocks are gathered twice, what is left of the model once."""
    gathered = (facts["parameters"] + facts["block_parameters"]) * facts["width"]
    shards = facts["ranks"] * facts["dp_size"]
    return shards_of_weights(shards, facts["grad_acc"], gathered, facts["parameters"] * facts["width"])


def _pipeline(facts: dict[str, Any]) -> float:
    """All in fp32, as the weights are."""
    if facts["dp_size"] > 1:
        raise UnavailableError("no formula for several pipelines")
    passed = facts["grad_acc"] * facts["batch_size"] * facts["max_length"] * facts["hidden_size"] * _FP32
    tied = 0 if facts["untied_embedding"] else facts["embedding_parameters"] * _FP32
    return stages(facts["ranks"], facts["stages"] // facts["ranks"], passed, tied)


def _experts(facts: dict[str, Any]) -> float:
    """Four all-to-alls per layer, of the tokens that the routers sent to experts elsewhere, into a rank and out of it.

    Balanced, (n - 1)/n of a token's experts are elsewhere. FSDP shards the experts over their copies only.
    """
    ranks, all_ranks, width, experts = facts["ep_size"], facts["dp_size"], facts["width"], facts["expert_parameters"]
    forward_passes = 2 if facts["gradient_checkpointing"] else 1
    rows = (forward_passes + 1) * facts["exchanged_tokens"] * facts["hidden_size"] * width
    sizes = forward_passes * facts["layers"] * facts["grad_acc"] * facts["experts"] * _INT64 * (ranks - 1) / ranks
    rest, held = facts["parameters"] - experts, experts / ranks * width
    gathered = (rest + facts["block_parameters"] - experts) * width
    sharded = shards_of_weights(all_ranks, facts["grad_acc"], gathered, rest * width)
    return rows + sizes + sharded + shards_of_weights(all_ranks // ranks, facts["grad_acc"], 2 * held, held)


_FORMULAS = {"tp": _tensor, "cp": _context, "sp": _ulysses, "pp": _pipeline, "ep": _experts}
