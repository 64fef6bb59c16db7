"""torch's own varlen attention kernel as an attention function of Transformers, for TRL's packing "bfd".

Its rows are flattened into one (padding-free), and `cu_seq_lens_q` says where each example begins. Transformers has
functions for such rows that need the package flash-attn; torch brings FlashAttention 2 along.
"""

from inspect import signature
from typing import Any

import torch
from torch.nn.attention import varlen

NAME = "torch_varlen"


def varlen_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    cu_seq_lens_q: torch.Tensor,
    max_length_q: int,
    scaling: float | None = None,
    **unused: Any,
) -> tuple[torch.Tensor, None]:
    """Causal attention within each example: (1, tokens, heads, head size).

    query, key, value: (1, heads, tokens, head size), the tokens of all examples of the micro-batch one after the other.
    cu_seq_lens_q: (examples + 1,) of int32, the first token of each example and the number of tokens.
    max_length_q: tokens of the longest example.
    """
    # Under autocast the rotation and the norms of queries and keys give fp32; the projection of values gives bf16.
    flat = [part[0].transpose(0, 1).to(value.dtype).contiguous() for part in (query, key, value)]
    ends, longest = (cu_seq_lens_q, cu_seq_lens_q), (max_length_q, max_length_q)
    settings = {"scale": scaling, "window_size": (-1, 0), "enable_gqa": True}
    return varlen.varlen_attn(*flat, *ends, *longest, **settings)[None], None


def register() -> None:
    """Register the function as NAME with Transformers, which makes no mask for it."""
    from transformers import AttentionInterface

    take_enable_gqa()
    AttentionInterface.register(NAME, varlen_attention)


def take_enable_gqa() -> None:
    """Accept `enable_gqa` with torch before 2.12, which supports fewer heads of keys than of queries without it."""
    old = varlen.varlen_attn
    if "enable_gqa" in signature(old).parameters:
        return

    def varlen_attn(
        *tensors: Any, scale: float | None = None, window_size: tuple[int, int] = (-1, -1), enable_gqa: bool = False
    ) -> torch.Tensor:
        return old(*tensors, scale=scale, window_size=window_size)

    varlen.varlen_attn = varlen_attn
