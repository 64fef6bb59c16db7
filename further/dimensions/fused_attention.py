"""The fused attention kernels that also give the log-sum-exp of the scores, and a model with another attention."""

from collections.abc import Callable
from typing import Any

import torch
from transformers import AttentionInterface, PreTrainedModel

from custom_model.model import SimpleGPTModel
from workshop import private_names as names
from workshop.record.errors import InputError


def fused_attention(query: Any, key: Any, value: Any, causal: bool, scaling: float | None) -> Any:
    """Return the attention of each query, and the log-sum-exp of its scores [batch, heads, queries]; GPU: bf16 only."""
    if query.is_cuda:
        return names.flash_attention(query, key, value, is_causal=causal, scale=scaling)[:2]
    return names.flash_attention_on_cpu(query, key, value, is_causal=causal, scale=scaling)


def fused_backward(
    gradient: Any, query: Any, result: Any, scale: Any, key: Any, value: Any, causal: bool, scaling: float | None
) -> Any:
    """Return the gradients of query, key and value; `result` and `scale` may cover more keys than these."""
    tensors = (gradient, query, key, value, result, scale)
    if not query.is_cuda:
        return names.flash_attention_on_cpu_backward(*tensors, 0.0, causal, scale=scaling)
    lengths, seed = (None, None, query.shape[2], key.shape[2]), torch.zeros((), dtype=torch.int64, device=query.device)
    return names.flash_attention_backward(*tensors, *lengths, 0.0, causal, seed, seed, scale=scaling)


def use_attention(model: PreTrainedModel, attend: Callable[..., torch.Tensor]) -> None:
    """Have the model call `attend` with queries, keys, values [batch, heads, positions, head size], and the factor of
    their scores; None: the usual one. Windows, caps and sinks are left out, and every mask but the causal one.
    """
    if isinstance(model, SimpleGPTModel):
        for block in model.blocks:
            block.attention.attend = attend
        return

    def ring(
        _: Any, query: Any, key: Any, value: Any, *__: Any, scaling: Any = None, dropout: Any = 0, **___: Any
    ) -> Any:
        if dropout:
            raise InputError(f"attention dropout of {dropout}; expected 0")
        return attend(query, key, value, scaling).transpose(1, 2).contiguous(), None

    AttentionInterface.register("ring", ring)
    model.set_attn_implementation("ring")  # without a mask: the library makes them for its own attentions only
