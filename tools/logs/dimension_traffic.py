"""What a rank sends with tensor, context, pipeline or expert parallelism, by formula: Table 25, the planner's layouts.

The scripts are in further/dimensions/. A is what passes between layers: rows x length x hidden size, of a micro-batch.
"""

from __future__ import annotations

from typing import Any

from tools.errors import UnavailableError
from workshop.record.schema import RunRecord

_FP32 = 4
_INT64 = 8


def sent_bytes(record: RunRecord) -> float:
    """Of a run, by the largest rank.

    Raises:
        UnavailableError: the record lacks something, or rows have different lengths.
    """
    settings = record.settings
    if settings.get("padding") != "max_length":
        raise UnavailableError("no rows of one length")
    seen = {
        name: value for one in (record.model, record.sharding) for name, value in vars(one).items() if value is not None
    }
    try:
        ranks = {"dp_size": record.dp_size, "ranks": record.world_size // record.dp_size}
        # The settings have the custom model's sizes, whichever model it is.
        return FORMULAS[record.sharding.method](settings | seen | ranks | {"width": 2 if settings["bf16"] else _FP32})
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
    loss = 2 * 3 * (1 + chunked) * positions * _FP32  # in chunks it is computed twice
    return (halves * a_bytes + loss) * (ranks - 1) / ranks


def ring(ranks: int, layers: int, keys_and_values_bytes: float, recomputed: bool) -> float:
    """Bytes of a micro-batch: a rank's keys and values pass all others in each pass, and then their gradients."""
    return (3 + recomputed) * layers * (ranks - 1) * keys_and_values_bytes


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


def _tensor(run: dict[str, Any]) -> float:
    positions = run["batch_size"] * run["max_length"]
    of_micro_batch = sums(
        run["ranks"],
        run["layers"],
        positions,
        positions * run["hidden_size"] * run["width"],
        recomputed=run["gradient_checkpointing"],
        by_position=run["sequence_parallel"],
        chunked=0 < run["loss_chunk"] < run["max_length"],
    )
    held = run["rank_parameters"] * run["width"]
    weights = shards_of_weights(run["dp_size"], run["grad_acc"], 2 * held, held)
    return run["grad_acc"] * of_micro_batch + weights


def _context(run: dict[str, Any]) -> float:
    keys_and_values = 2 * run["batch_size"] * run["max_length"] / run["ranks"] * run["key_value_size"] * run["width"]
    passed = ring(run["ranks"], run["layers"], keys_and_values, run["gradient_checkpointing"])
    return run["grad_acc"] * passed + _all_shards(run)


def _ulysses(run: dict[str, Any]) -> float:
    """All-to-alls of a rank's queries, keys, values and results, and of their gradients; each keeps its own part.

    Of as many key heads as ranks, or more. DeepSpeed also gathers the positions' numbers, once for all rows.
    """
    ranks, passes = run["ranks"], run["layers"] * run["grad_acc"]
    numbers = 2 * (run["attention_size"] + run["key_value_size"]) * run["batch_size"] * run["max_length"] / ranks
    forward_passes = 1 + run["gradient_checkpointing"]
    exchanged = (forward_passes + 1) * numbers * run["width"] + forward_passes * run["max_length"] * _INT64
    return passes * exchanged * (ranks - 1) / ranks + _all_shards(run)


def _all_shards(run: dict[str, Any]) -> float:
    """Over all ranks: blocks are gathered twice, what is left of the model once."""
    gathered = (run["parameters"] + run["block_parameters"]) * run["width"]
    shards = run["ranks"] * run["dp_size"]
    return shards_of_weights(shards, run["grad_acc"], gathered, run["parameters"] * run["width"])


def _pipeline(run: dict[str, Any]) -> float:
    """All in fp32, as the weights are."""
    if run["dp_size"] > 1:
        raise UnavailableError("no formula for several pipelines")
    passed = run["grad_acc"] * run["batch_size"] * run["max_length"] * run["hidden_size"] * _FP32
    tied = 0 if run["untied_embedding"] else run["embedding_parameters"] * _FP32
    return stages(run["ranks"], run["stages"] // run["ranks"], passed, tied)


def _experts(run: dict[str, Any]) -> float:
    """Four all-to-alls per layer, of the tokens that the routers sent to experts elsewhere, into a rank and out of it.

    Balanced, (n - 1)/n of a token's experts are elsewhere. FSDP shards the experts over their copies only.
    """
    ranks, all_ranks, width, experts = run["ep_size"], run["dp_size"], run["width"], run["expert_parameters"]
    forward_passes = 1 + run["gradient_checkpointing"]
    rows = (forward_passes + 1) * run["exchanged_tokens"] * run["hidden_size"] * width
    sizes = forward_passes * run["layers"] * run["grad_acc"] * run["experts"] * _INT64 * (ranks - 1) / ranks
    rest, own = run["parameters"] - experts, experts / ranks * width
    gathered = (rest + run["block_parameters"] - experts) * width
    sharded = shards_of_weights(all_ranks, run["grad_acc"], gathered, rest * width)
    return rows + sizes + sharded + shards_of_weights(all_ranks // ranks, run["grad_acc"], 2 * own, own)


FORMULAS = {"tp": _tensor, "cp": _context, "sp": _ulysses, "pp": _pipeline, "ep": _experts}
