"""Test whether the fast forward pass is a decoder's own function, on a small model of the same kind.

The small model has the same kinds of layers, attention and head. Windows and limits of positions are scaled to its
rows as the real ones are to MAX_LENGTH.
"""

from copy import deepcopy
from typing import Any

import torch
from torch.nn.utils import parameters_to_vector
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from workshop.kernels.fast_models.model import use_attention, use_fast_forward, use_loss
from workshop.kernels.fast_models.packing import Row, pack

LENGTHS = (32, 20, 13, 12, 10, 9)  # tokens of the examples, which fill three rows
ROW = 32
TOLERANCE = 0.01  # of the gradients' norm; packed and alone differ by 1e-6 where the function is the same
SIZES = {
    **{"num_hidden_layers": 4, "hidden_size": 64, "intermediate_size": 96, "vocab_size": 101, "initializer_range": 0.1},
    **{"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "query_pre_attn_scalar": 16},
    **{"num_local_experts": 4, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32},
    **dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id")),
}
GROUPS = {"n_group": 2, "topk_group": 1}  # of the small model's four experts
# A small model's scores and logits stay far below the usual caps: a kernel that leaves caps out would go unnoticed.
CAPS = ("attn_logit_softcapping", "final_logit_softcapping")
LIMITS = ("sliding_window", "max_position_embeddings", "original_max_position_embeddings", "attention_chunk_size")


def difference(config: Any, max_length: int, attention: str, loss: str) -> str:
    """Return how a packed decoder with this configuration differs from the library's on each example alone; "" if it
    is the same function in rows of `max_length` tokens with these kernels. Takes a second, with flex some more.
    """
    device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.manual_seed(0)
        small = AutoModelForCausalLM.from_config(_small(config, max_length), attn_implementation="eager")
        small = small.to(device, torch.float32).eval()  # no dropout
        fast = deepcopy(small)
        use_fast_forward(fast)
        use_attention(fast, attention)
        use_loss(fast, loss, chunk=128)
        texts = [part.tolist() for part in torch.randint(0, SIZES["vocab_size"], (sum(LENGTHS),)).split(LENGTHS)]
        examples = [{"input_ids": ids, "attention_mask": [1] * len(ids), "labels": ids} for ids in texts]
        alone, packed = _alone(small, examples), _packed(fast, examples)
    except Exception as error:  # whatever the model raises, it cannot be trained so
        return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    share = ((packed - alone).norm() / alone.norm()).item()
    return "" if share < TOLERANCE else f"gradients of a small one differ by {share:.1%}"


def _small(config: Any, max_length: int) -> Any:
    """Return the configuration of a small model of the same kind."""
    values = config.to_dict()
    changes = {name: value for name, value in SIZES.items() if hasattr(config, name)}
    if getattr(config, "num_key_value_heads", None) == config.num_attention_heads:
        changes["num_key_value_heads"] = changes["num_attention_heads"]
    changes |= {name: 0.1 for name in CAPS if values.get(name)}
    changes |= {name: groups for name, groups in GROUPS.items() if values.get(name)}
    if "qk_rope_head_dim" in values:  # latent attention, which computes head_dim from it
        del changes["head_dim"], values["head_dim"]
    if kinds := list(dict.fromkeys(values.get("layer_types") or ())):
        changes["layer_types"] = [kinds[layer % len(kinds)] for layer in range(changes["num_hidden_layers"])]
    return AutoConfig.for_model(values.pop("model_type"), **_scaled(values, ROW / max_length) | changes)


def _scaled(values: dict[str, Any], share: float) -> dict[str, Any]:
    """Return the values with each of LIMITS times `share`, and rotation factors for the small heads."""
    found = {}
    for name, value in values.items():
        if isinstance(value, dict):
            value = _scaled(value, share)
        elif name in LIMITS and value:
            value = max(1, round(value * share))
        elif name in ("short_factor", "long_factor"):
            value = value[: int(SIZES["head_dim"] * values.get("partial_rotary_factor", 1)) // 2]
        found[name] = value
    return found


def _alone(model: PreTrainedModel, examples: list[Row]) -> torch.Tensor:
    """Return gradients of the mean loss, computed by the library one example at a time."""
    for example in examples:
        loss = model(**_batch([example], model.device), use_cache=False).loss  # as the Trainer computes it
        (loss * (len(example["labels"]) - 1) / sum(length - 1 for length in LENGTHS)).backward()
    return _gradients(model)


def _packed(model: PreTrainedModel, examples: list[Row]) -> torch.Tensor:
    model(**_batch(pack(examples, ROW), model.device)).loss.backward()
    return _gradients(model)


def _batch(rows: list[Row], device: torch.device) -> dict[str, torch.Tensor]:
    """Return the rows, equally long, as a batch."""
    return {name: torch.tensor([row[name] for row in rows], device=device) for name in rows[0]}


def _gradients(model: PreTrainedModel) -> torch.Tensor:
    return parameters_to_vector([torch.zeros_like(p) if p.grad is None else p.grad for p in model.parameters()])
