"""Table 25: what a rank sends in a step with tensor, context or pipeline parallelism, by formula.

The scripts are in dimensions/. A is what passes between two layers: rows x length x hidden size, of a micro-batch.
"""

from __future__ import annotations

from typing import Any

from tools.errors import UnavailableError

_FP32 = 4
_INT64 = 8


def sent_bytes(record: dict[str, Any]) -> float:
    """Of a run's record, by the largest rank.

    Raises:
        UnavailableError: the record lacks something, or rows have different lengths.
    """
    model, settings, sharding = record.get("model") or {}, record.get("settings") or {}, record["sharding"]
    if settings.get("padding") != "max_length":
        raise UnavailableError("no rows of one length")
    try:
        ranks = {"dp_size": record["dp_size"], "ranks": record["world_size"] // record["dp_size"]}
        return FORMULAS[sharding["method"]](
            model | settings | sharding | ranks | {"width": 2 if settings["bf16"] else _FP32}
        )
    except (KeyError, TypeError):
        raise UnavailableError("an incomplete record") from None


def _tensor(run: dict[str, Any]) -> float:
    """Each layer adds up A twice in the forward and twice in the backward pass, and embedding and head once.

    A sum is an all-reduce; by positions a reduce-scatter and an all-gather, which send as much. Recomputing a block
    repeats its first sum, by positions both all-gathers too. The loss needs three numbers of each position.
    """
    positions, ranks = run["batch_size"] * run["max_length"], run["ranks"]
    halves = 2 * (4 * run["layers"] + 2)
    if run["gradient_checkpointing"]:
        halves += (3 if run["sequence_parallel"] else 2) * run["layers"]
    chunked = 0 < run["loss_chunk"] < run["max_length"]  # then computed twice
    loss = 2 * 3 * (1 + chunked) * positions * _FP32
    sums = run["grad_acc"] * (halves * positions * run["hidden_size"] * run["width"] + loss)
    shards, held = run["dp_size"], run["rank_parameters"] * run["width"]
    return sums * (ranks - 1) / ranks + (2 * run["grad_acc"] + 1) * held * (shards - 1) / shards


def _context(run: dict[str, Any]) -> float:
    """Keys and values of a rank's positions pass all others, again in the backward pass, and then their gradients."""
    ranks = run["ranks"]
    passed = 2 * run["batch_size"] * run["max_length"] / ranks * run["key_value_size"] * run["width"]
    passes = (3 + run["gradient_checkpointing"]) * run["layers"] * (ranks - 1)
    return run["grad_acc"] * passes * passed + _sharded_weights(run)


def _ulysses(run: dict[str, Any]) -> float:
    """All-to-alls of a rank's queries, keys, values and results, and of their gradients; each keeps its own part.

    Of as many key heads as ranks, or more. DeepSpeed also gathers the positions' numbers, once for all rows.
    """
    ranks, passes = run["ranks"], run["layers"] * run["grad_acc"]
    numbers = 2 * (run["attention_size"] + run["key_value_size"]) * run["batch_size"] * run["max_length"] / ranks
    forward_passes = 1 + run["gradient_checkpointing"]
    exchanged = (forward_passes + 1) * numbers * run["width"] + forward_passes * run["max_length"] * _INT64
    return passes * exchanged * (ranks - 1) / ranks + _sharded_weights(run)


def _sharded_weights(run: dict[str, Any]) -> float:
    """Over all ranks: blocks are gathered twice, what is left of the model once."""
    shards = run["ranks"] * run["dp_size"]
    gathered = run["parameters"] + run["block_parameters"]
    messages = (run["grad_acc"] * gathered + run["parameters"]) * run["width"]
    return messages * (shards - 1) / shards


def _pipeline(run: dict[str, Any]) -> float:
    """A of each micro-batch to the next stage, its gradient to the one before; a tied head's gradient is added up.

    The sums stay in fp32, as the weights are.
    """
    ranks = run["ranks"]
    if run["dp_size"] > 1:
        raise UnavailableError("no formula for several pipelines")
    passed = run["grad_acc"] * run["batch_size"] * run["max_length"] * run["hidden_size"] * _FP32
    of_each = 2 * run["stages"] // ranks  # of a rank in the middle; the first has none before it, the last none after
    ends = (of_each - 1) * passed + (0 if run["untied_embedding"] else run["embedding_parameters"] * _FP32)
    return max(ends, of_each * passed if ranks > 2 else 0)


FORMULAS = {"tp": _tensor, "cp": _context, "sp": _ulysses, "pp": _pipeline}
