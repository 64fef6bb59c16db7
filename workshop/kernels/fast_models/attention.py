"""Attention of packed rows in one kernel: the same function as the library's, without the scores in memory.

The library multiplies, adds ALiBi, masks, converts to fp32, takes the softmax, converts back and multiplies again: each
step writes and reads [rows, heads, length, length] numbers. A fused kernel keeps a tile of them on the chip.

ALiBi (arXiv:2108.12409) adds slope x (key's position - query's position) to a score. The library adds slope x key's
position, which differs by a constant per query, and softmax does not see a constant. The distance is the better form:
it is small where attention is strong, so bf16 keeps its digits; and two documents packed into one row need no positions
of their own, because a distance inside a document does not depend on where it begins.

BLOOM's attention is replaced. The library's other decoders accept a kernel of the user's, and take positions within
documents as `position_ids`: they get flex_attention with the same blocks.

Rows are padded on the right: no real token comes after padding, so the causal mask alone hides the padding.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch.nn import functional
from torch.nn.attention.flex_attention import BlockMask, flex_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import flex_attention_mask, sdpa_mask
from transformers.models.bloom.modeling_bloom import BloomAttention, build_alibi_tensor, dropout_add

FLEX_BLOCK = 128  # tokens of a block of flex_attention's mask, its default
Kernel = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def head_size(config: Any) -> int:
    return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads


class FusedBloomAttention(BloomAttention):
    """The library's attention with its middle part replaced by `attention_mask`, a Kernel.

    Given ALiBi as a tensor, as when the library generates with its cache, it is the library's attention.
    """

    def forward(
        self,
        hidden_states: torch.Tensor,
        residual: torch.Tensor,
        alibi: torch.Tensor | None,
        attention_mask: torch.Tensor | Kernel,
        **options: object,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """[rows, length, hidden size] in and out; no attention weights, which never exist."""
        if alibi is not None:
            return super().forward(hidden_states, residual, alibi, attention_mask, **options)
        query, key, value = self._reshape(self.query_key_value(hidden_states))  # [rows, heads, length, head size]
        context = attention_mask(query, key, value).transpose(1, 2).flatten(2)
        return dropout_add(self.dense(context), residual, self.hidden_dropout, self.training), None


def slopes(heads: int, device: torch.device) -> torch.Tensor:
    """Return ALiBi's slope of each head, [heads], fp32; the library covers the case of 112 heads, too."""
    two_positions = torch.ones(1, 2, device=device)
    return build_alibi_tensor(two_positions, heads, torch.float32)[:, 0, 1]


def visible(length: int, documents: torch.Tensor | None, device: torch.device) -> torch.Tensor:
    """Return which keys a query sees, bool [1 or rows, 1, length, length]: those before it in its document."""
    causal = torch.ones(length, length, dtype=torch.bool, device=device).tril()[None, None]
    if documents is None:
        return causal
    return causal & (documents[:, None, :, None] == documents[:, None, None, :])


def additive_mask(length: int, documents: torch.Tensor | None, like: torch.Tensor) -> torch.Tensor:
    """Return `visible` as the library's additive mask: 0, or the least number of its type."""
    seen = visible(length, documents, like.device)
    return torch.zeros(seen.shape, dtype=like.dtype, device=like.device).masked_fill(~seen, torch.finfo(like.dtype).min)


def sdpa(heads: int, length: int, documents: torch.Tensor | None, device: torch.device, dtype: torch.dtype) -> Kernel:
    """torch's scaled_dot_product_attention with ALiBi and the mask as one bias, made once for all layers.

    The bias is [1 or rows, heads, length, length]: small for one document per row, 0.5 GiB for 64 packed rows of
    BLOOM-560m at 512 tokens.
    """
    position = torch.arange(length, device=device)
    alibi = slopes(heads, device)[:, None, None] * (position[None, :] - position[:, None])
    bias = alibi.masked_fill(~visible(length, documents, device), float("-inf")).to(dtype)
    return _Sdpa(bias)


class _Sdpa:
    # An object, not a tensor: FSDP and DeepSpeed convert and copy tensors among a block's arguments.
    def __init__(self, bias: torch.Tensor) -> None:
        self.bias = bias

    def __call__(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return functional.scaled_dot_product_attention(query, key, value, attn_mask=self.bias)


class Flex:
    """torch's flex_attention: ALiBi is computed in the kernel, invisible blocks of 128 x 128 are skipped."""

    def __init__(self, heads: int, length: int, documents: torch.Tensor | None, device: torch.device, _: Any) -> None:
        head_slopes = slopes(heads, device)

        def alibi(score, row, head, query_position, key_position):
            return score + head_slopes[head] * (key_position - query_position)

        self.score, self.blocks = alibi, packed_blocks(documents, length, device)

    def __call__(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return _flex_kernel(query)(query, key, value, score_mod=self.score, block_mask=self.blocks)


class ShortDocuments:
    """The kernel of documents.py with ALiBi."""

    def __init__(self, heads: int, length: int, documents: torch.Tensor | None, device: torch.device, _: Any) -> None:
        self.slopes, self.bounds = slopes(heads, device), bounds(documents, length, device)

    def __call__(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        attend = torch.ops.shardlab.documents_attention  # of documents.py, which use_attention imports
        out, _ = attend(query, key, value, self.bounds, self.slopes, query.shape[-1] ** -0.5)
        return out.transpose(1, 2)


WITH_ALIBI = {"eager": None, "sdpa": sdpa, "flex": Flex, "documents": ShortDocuments}  # None: the library's own


def packed_mask(documents: torch.Tensor | None, length: int, device: torch.device) -> torch.Tensor | None:
    """Return the mask as bool [rows, 1, length, length]; None without documents: the library's causal mask."""
    return None if documents is None else visible(length, documents, device)


def bounds(documents: torch.Tensor | None, length: int, device: torch.device) -> torch.Tensor:
    """Return start and end of each token's document, int32 [2, rows, 1, length]; without documents of one row.

    Args: documents: [rows, length], each token's document; None: one per row.
    """
    if documents is None:
        documents = torch.zeros(1, length, dtype=torch.int32, device=device)
    position = torch.arange(length, device=device)
    last = documents != functional.pad(documents[:, 1:], (0, 1), value=-1)
    ends = (position + 1).masked_fill(~last, length).flip(1).cummin(dim=1).values.flip(1)
    return torch.stack([starts(documents), ends]).int().unsqueeze(2).contiguous()


def starts(documents: torch.Tensor) -> torch.Tensor:
    """Return the start of each token's document in its row; [rows, length] as `documents`."""
    first = documents != functional.pad(documents[:, :-1], (1, 0), value=-1)
    return (torch.arange(documents.shape[1], device=documents.device) * first).cummax(dim=1).values


def position_ids(documents: torch.Tensor) -> torch.Tensor:
    """Return each token's position in its document, from 0; [rows, length] as `documents`."""
    return torch.arange(documents.shape[1], device=documents.device) - starts(documents)


def _packed_flex(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: BlockMask,
    scaling: float | None = None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """[rows, heads, length, head size] in, keys and values perhaps with fewer heads; [rows, length, heads, ...] out."""
    grouped = query.shape[1] != key.shape[1]
    query, key = query.to(value.dtype), key.to(value.dtype)
    out = _flex_kernel(query)(query, key, value, block_mask=attention_mask, scale=scaling, enable_gqa=grouped)
    return out.transpose(1, 2).contiguous(), None


def _packed_documents(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """As _packed_flex; `attention_mask`: `bounds`, or in generation the library's mask."""
    query, key = query.to(value.dtype), key.to(value.dtype)
    if attention_mask is None or attention_mask.dtype == torch.bool:
        return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **options)
    attend = torch.ops.shardlab.documents_attention
    out, _ = attend(query, key, value, attention_mask, None, scaling or query.shape[-1] ** -0.5)
    return out, None


def packed_blocks(documents: torch.Tensor | None, length: int, device: torch.device) -> BlockMask:
    """Return flex_attention's mask: a token sees those before it in its document.

    It is that of torch's create_block_mask, found from the ends of the blocks, not from every pair: create_block_mask
    takes Python over 10 ms per batch, in which the GPU is idle (the profile of rung 11).

    Args: documents: [rows, length], rising from 1 along a row, 0 after the last; None: one per row.
    """

    # flex_attention traces these: tensors that they read become inputs of its kernel.
    def causal(row, head, query_position, key_position):
        return query_position >= key_position

    def causal_in_document(row, head, query_position, key_position):
        same = documents[row, query_position] == documents[row, key_position]
        return (query_position >= key_position) & same

    seen = causal if documents is None else causal_in_document
    if documents is None:
        documents = torch.ones(1, length, dtype=torch.int32, device=device)
    documents = documents.int()  # the kernel reads one per pair: half the bytes of the int64 of a batch
    size = FLEX_BLOCK
    rows, blocks = len(documents), -(-length // size)
    beyond, nowhere = torch.iinfo(torch.int32).max - 1, torch.iinfo(torch.int32).max
    rising = documents.masked_fill(documents == 0, beyond)
    in_blocks = functional.pad(rising, (0, blocks * size - length), value=nowhere).view(rows, blocks, size)
    first, last = in_blocks.amin(2), in_blocks.amax(2)
    # [rows, 1, query blocks, key blocks]: some pairs see each other; all do, because both blocks lie in one document
    meet = (last[:, None, None, :] >= first[:, None, :, None]).tril()
    full = (first[:, None, None, :] == last[:, None, :, None]).tril(-1)
    partial = meet & ~full
    parts = {}
    for name, chosen in {"kv": partial, "full_kv": full, "q": partial.mT, "full_q": full.mT}.items():
        parts[f"{name}_num_blocks"] = chosen.sum(-1, dtype=torch.int32)
        chosen_first = chosen.int().argsort(dim=-1, descending=True, stable=True)
        parts[f"{name}_indices"] = chosen_first.to(torch.int32, memory_format=torch.contiguous_format)
    return BlockMask(seq_lengths=(length, length), BLOCK_SIZE=(size, size), mask_mod=seen, **parts)


# For decoders other than BLOOM. With its own flex_attention the library passes rotated queries and keys in fp32 beside
# values in bf16. Generation has no documents: its masks are the library's. No kernel computes attention sinks and soft
# caps, which exactness.py sees.
MASKS = {"flex": packed_blocks, "sdpa": packed_mask, "documents": bounds}
AttentionInterface.register("packed_flex", _packed_flex)
AttentionInterface.register("packed_documents", _packed_documents)
AttentionMaskInterface.register("packed_flex", flex_attention_mask)
AttentionMaskInterface.register("packed_documents", sdpa_mask)


def _flex_kernel(query: torch.Tensor) -> Callable[..., torch.Tensor]:
    return _fused_flex() if query.is_cuda and not torch.compiler.is_compiling() else flex_attention


@cache
def _fused_flex() -> Callable[..., torch.Tensor]:
    return torch.compile(flex_attention, dynamic=False)  # uncompiled it would compute all scores, as the library does
