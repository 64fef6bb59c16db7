"""Test whether a changed decoder is still the library's function, on a small model of the same kind.

The small model has the same kinds of layers, attention and head. Windows and limits of positions are scaled to its
rows as the real ones are to MAX_LENGTH.
"""

from collections.abc import Callable, Hashable
from copy import deepcopy
from typing import Any

import torch
from torch.nn.utils import parameters_to_vector
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from workshop.data.encoding import Encoded
from workshop.kernels.fast_models.model import use_attention, use_fast_forward, use_loss
from workshop.kernels.fast_models.packing import pack

LENGTHS = (32, 20, 13, 12, 10, 9)  # tokens of the examples, which fill three rows
ROW = 32
TOLERANCE = 0.01  # of the gradients' norm; packed and alone differ by 1e-6 where the function is the same
SIZES = {
    **{"num_hidden_layers": 4, "hidden_size": 64, "intermediate_size": 96, "vocab_size": 101, "initializer_range": 0.1},
    **{"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "query_pre_attn_scalar": 16},
    **{"num_local_experts": 4, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32},
    **{"mamba_d_ssm": 64, "mamba_n_heads": 4, "mamba_d_head": 16, "mamba_d_state": 16, "mamba_chunk_size": 16},
    **{"mamba_expand": 1, "rotary_dim": 8},
    **{"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2},
}
# Where the configuration has them: groups of the four experts, caps, and the router's loss. A small model's scores and
# logits stay far below the usual ones: a kernel that leaves caps out would go unnoticed, as would a loss of 0.001.
IF_SET = {"n_group": 2, "topk_group": 1, "attn_logit_softcapping": 0.1, "final_logit_softcapping": 0.1}
IF_SET |= {"router_aux_loss_coef": 1.0}
LIMITS = ("sliding_window", "max_position_embeddings", "original_max_position_embeddings", "attention_chunk_size")


Change = Callable[[PreTrainedModel, list[Encoded]], torch.Tensor]  # changes a model; returns the mean loss of examples


def difference(config: Any, max_length: int, change: Change, device: str = "") -> str:
    """Return how a changed decoder with this configuration differs from the library's on each example alone; "" if it
    is the same function in rows of `max_length` tokens. Takes a second, with flex some more.

    Args: device: "": the GPU if there is one.
    """
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        torch.manual_seed(0)
        small = AutoModelForCausalLM.from_config(_small(config, max_length), attn_implementation="eager")
        small = small.to(device, torch.float32).eval()  # no dropout
        small.config.use_cache = False
        changed = deepcopy(small)
        texts = [part.tolist() for part in torch.randint(0, SIZES["vocab_size"], (sum(LENGTHS),)).split(LENGTHS)]
        examples = [{"input_ids": ids, "attention_mask": [1] * len(ids), "labels": ids} for ids in texts]
        theirs, ours = _results(small, _alone(small, examples)), _results(changed, change(changed, examples))
    except Exception as error:  # whatever the model raises, it cannot be trained so
        return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    shares = [((mine - right).norm() / right.norm()).item() for mine, right in zip(ours, theirs, strict=True)]
    compared = zip(("losses", "gradients"), shares, strict=True)
    return ", ".join(
        f"{what} of a small one differ by {share:.1%}" for what, share in compared if not share < TOLERANCE
    )


def packed_with(attention: str, loss: str) -> Change:
    """Return the change of the ladder's rungs with these kernels: all examples in packed rows."""

    def change(model: PreTrainedModel, examples: list[Encoded]) -> torch.Tensor:
        use_fast_forward(model)
        use_attention(model, attention)
        use_loss(model, loss, chunk=128)
        return model(**as_batch(pack(examples, ROW), model.device)).loss

    return change


def _small(config: Any, max_length: int) -> Any:
    """Return the configuration of a small model of the same kind."""
    values, own = config.to_dict(), config.attribute_map
    given = {name: values[own.get(name, name)] for name in (*SIZES, *IF_SET) if own.get(name, name) in values}
    changes = {name: size for name, size in SIZES.items() if name in given}
    changes |= {name: small for name, small in IF_SET.items() if given.get(name)}
    if "num_key_value_heads" in given and given["num_key_value_heads"] == given["num_attention_heads"]:
        changes["num_key_value_heads"] = changes["num_attention_heads"]
    if "qk_rope_head_dim" in values:  # latent attention, which computes head_dim from it
        for sizes in (changes, values):
            sizes.pop("head_dim", None)
    for name, each in values.items():  # of the layers: the small one has each kind
        if isinstance(each, list) and len(each) == config.num_hidden_layers and isinstance(each[0], Hashable):
            kinds = list(dict.fromkeys(each))
            changes[name] = [kinds[layer % len(kinds)] for layer in range(changes["num_hidden_layers"])]
    changes = {own.get(name, name): value for name, value in changes.items()}
    return AutoConfig.for_model(values.pop("model_type"), **_scaled(values, ROW / max_length) | changes)


def _scaled(values: dict[str, Any], share: float) -> dict[str, Any]:
    """Return the values with each of LIMITS times `share`, and rotation factors for the small heads."""
    scaled = {}
    for name, value in values.items():
        if isinstance(value, dict):
            value = _scaled(value, share)
        elif name in LIMITS and value:
            value = max(1, round(value * share))
        elif name in ("short_factor", "long_factor"):
            value = value[: int(SIZES["head_dim"] * values.get("partial_rotary_factor", 1)) // 2]
        scaled[name] = value
    return scaled


def _alone(model: PreTrainedModel, examples: list[Encoded]) -> torch.Tensor:
    """Return the mean loss, computed by the library one example at a time."""
    targets = [len(example["labels"]) - 1 for example in examples]
    losses = [model(**as_batch([example], model.device)).loss for example in examples]  # as the Trainer computes it
    return sum(loss * count for loss, count in zip(losses, targets, strict=True)) / sum(targets)


def as_batch(rows: list[Encoded], device: torch.device) -> dict[str, torch.Tensor]:
    """Return the rows, equally long, as a batch."""
    return {name: torch.tensor([row[name] for row in rows], device=device) for name in rows[0]}


def _results(model: PreTrainedModel, loss: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the loss and the gradients of all weights."""
    loss.backward()
    gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in model.parameters()]
    return loss.detach(), parameters_to_vector(gradients)
