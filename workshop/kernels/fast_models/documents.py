"""Varlen attention of short documents packed into rows, in Triton: a query sees only the keys of its document.

flex_attention works in blocks of 128 x 128 and reads a mask to know which of them to compute; a document of 170 tokens
fills little of them. This kernel works in blocks of 64 and needs two numbers per token, its document's start and end.

A block of queries needs the keys from the start of its first token's document to the block's end. Scores are computed
a tile at a time and never stored; the backward pass recomputes them from the logarithm of their sum (FlashAttention-2,
arXiv:2307.08691): once for the queries' gradients, once for the keys' and values'. Exponentials have base 2, as the
chip computes them. `bounds` (attention.py) holds the starts of each token's document, then the ends.
"""

import math
from typing import Any

import torch
import triton
import triton.language as tl

BLOCK = 64  # queries and keys of a tile: one warp group multiplies so many at once
WARPS = 4  # twice as many for heads that need more registers


@triton.jit
def _product(left, right):
    return tl.dot(left, right, input_precision="ieee")  # fp32 stays fp32, 16 bits stay 16 bits


@triton.jit
def _rows_of(base, begin, length, stride, size: tl.constexpr, tile: tl.constexpr):
    """[tile, size]: the vectors of tile tokens, 0 after the row's end."""
    at = begin + tl.arange(0, tile)
    return tl.load(base + at[:, None] * stride + tl.arange(0, size)[None, :], mask=at[:, None] < length, other=0.0)


@triton.jit
def _scores(query, key, starts, at_q, at_k, scale, slope, alibi: tl.constexpr):
    """Return scores [queries, keys], base 2, and which of them count."""
    score = _product(query, tl.trans(key)) * scale
    if alibi:
        score += slope * (at_k[None, :] - at_q[:, None])
    return score, (at_k[None, :] >= starts[:, None]) & (at_k[None, :] <= at_q[:, None])


@triton.jit
def _forward(
    queries, keys, values, outs, log_sums, bounds, slopes, scale, length, heads, bounds_row,
    q_row, q_head, q_token, k_row, k_head, k_token, v_row, v_head, v_token,
    group: tl.constexpr, size: tl.constexpr, tile: tl.constexpr, alibi: tl.constexpr,
):  # fmt: skip
    block, head, row = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    keys += row * k_row + head // group * k_head
    values += row * v_row + head // group * v_head
    at_q = block * tile + tl.arange(0, tile)
    starts = tl.load(bounds + row * bounds_row + at_q, mask=at_q < length, other=length)
    slope = tl.load(slopes + head) if alibi else 0.0
    query = _rows_of(queries + row * q_row + head * q_head, block * tile, length, q_token, size, tile)
    top = tl.full([tile], -1.0e30, tl.float32)
    total = tl.zeros([tile], tl.float32)
    weighted = tl.zeros([tile, size], tl.float32)
    first = tl.load(bounds + row * bounds_row + block * tile)
    for begin in range(first // tile * tile, block * tile + 1, tile):
        at_k = begin + tl.arange(0, tile)
        score, seen = _scores(
            query, _rows_of(keys, begin, length, k_token, size, tile), starts, at_q, at_k, scale, slope, alibi
        )
        score = tl.where(seen, score, -1.0e30)
        higher = tl.maximum(top, tl.max(score, 1))
        weight = tl.exp2(score - higher[:, None])
        shrink = tl.exp2(top - higher)
        total = total * shrink + tl.sum(weight, 1)
        value = _rows_of(values, begin, length, v_token, size, tile)
        weighted = weighted * shrink[:, None] + _product(weight.to(value.dtype), value)
        top = higher
    inside = at_q < length
    offsets = ((row * length + at_q) * heads + head)[:, None] * size + tl.arange(0, size)[None, :]
    tl.store(outs + offsets, (weighted / total[:, None]).to(outs.dtype.element_ty), mask=inside[:, None])
    tl.store(log_sums + (row * heads + head) * length + at_q, top + tl.log2(total), mask=inside)


@triton.jit
def _backward_queries(
    queries, keys, values, outs, d_outs, d_queries, log_sums, deltas, bounds, slopes,
    scale, natural_scale, length, heads, bounds_row,
    q_row, q_head, q_token, k_row, k_head, k_token, v_row, v_head, v_token,
    group: tl.constexpr, size: tl.constexpr, tile: tl.constexpr, alibi: tl.constexpr,
):  # fmt: skip
    block, head, row = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    keys += row * k_row + head // group * k_head
    values += row * v_row + head // group * v_head
    at_q = block * tile + tl.arange(0, tile)
    inside = at_q < length
    starts = tl.load(bounds + row * bounds_row + at_q, mask=inside, other=length)
    slope = tl.load(slopes + head) if alibi else 0.0
    query = _rows_of(queries + row * q_row + head * q_head, block * tile, length, q_token, size, tile)
    of_out = (row * length * heads + head) * size
    d_out = _rows_of(d_outs + of_out, block * tile, length, heads * size, size, tile)
    out = _rows_of(outs + of_out, block * tile, length, heads * size, size, tile)
    delta = tl.sum(out.to(tl.float32) * d_out.to(tl.float32), 1)
    of_sums = (row * heads + head) * length + at_q
    tl.store(deltas + of_sums, delta, mask=inside)
    log_sum = tl.load(log_sums + of_sums, mask=inside, other=0.0)
    d_query = tl.zeros([tile, size], tl.float32)
    first = tl.load(bounds + row * bounds_row + block * tile)
    for begin in range(first // tile * tile, block * tile + 1, tile):
        at_k = begin + tl.arange(0, tile)
        key = _rows_of(keys, begin, length, k_token, size, tile)
        score, seen = _scores(query, key, starts, at_q, at_k, scale, slope, alibi)
        weight = tl.where(seen, tl.exp2(score - log_sum[:, None]), 0.0)
        d_weight = _product(d_out, tl.trans(_rows_of(values, begin, length, v_token, size, tile)))
        d_score = weight * (d_weight - delta[:, None])
        d_query += _product(d_score.to(key.dtype), key)
    offsets = ((row * length + at_q) * heads + head)[:, None] * size + tl.arange(0, size)[None, :]
    tl.store(d_queries + offsets, (d_query * natural_scale).to(d_queries.dtype.element_ty), mask=inside[:, None])


@triton.jit
def _backward_keys(
    queries, keys, values, d_outs, d_keys, d_values, log_sums, deltas, bounds, slopes,
    scale, natural_scale, length, heads, bounds_row, ends_at,
    q_row, q_head, q_token, k_row, k_head, k_token, v_row, v_head, v_token,
    group: tl.constexpr, size: tl.constexpr, tile: tl.constexpr, alibi: tl.constexpr,
):  # fmt: skip
    block, key_head, row = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    at_k = block * tile + tl.arange(0, tile)
    key = _rows_of(keys + row * k_row + key_head * k_head, block * tile, length, k_token, size, tile)
    value = _rows_of(values + row * v_row + key_head * v_head, block * tile, length, v_token, size, tile)
    end = tl.load(bounds + ends_at + row * bounds_row + tl.minimum(block * tile + tile, length) - 1)
    d_key = tl.zeros([tile, size], tl.float32)
    d_value = tl.zeros([tile, size], tl.float32)
    for head in range(key_head * group, (key_head + 1) * group):
        slope = tl.load(slopes + head) if alibi else 0.0
        for begin in range(block * tile, end, tile):
            at_q = begin + tl.arange(0, tile)
            inside = at_q < length
            starts = tl.load(bounds + row * bounds_row + at_q, mask=inside, other=length)
            of_sums = (row * heads + head) * length + at_q
            log_sum = tl.load(log_sums + of_sums, mask=inside, other=0.0)
            delta = tl.load(deltas + of_sums, mask=inside, other=0.0)
            query = _rows_of(queries + row * q_row + head * q_head, begin, length, q_token, size, tile)
            d_out = _rows_of(d_outs + (row * length * heads + head) * size, begin, length, heads * size, size, tile)
            score, seen = _scores(query, key, starts, at_q, at_k, scale, slope, alibi)
            weight = tl.where(seen, tl.exp2(score - log_sum[:, None]), 0.0)
            d_value += _product(tl.trans(weight.to(d_out.dtype)), d_out)
            d_weight = _product(d_out, tl.trans(value))
            d_score = weight * (d_weight - delta[:, None])
            d_key += _product(tl.trans(d_score.to(query.dtype)), query)
    key_heads = heads // group
    offsets = ((row * length + at_k) * key_heads + key_head)[:, None] * size + tl.arange(0, size)[None, :]
    inside = (at_k < length)[:, None]
    tl.store(d_keys + offsets, (d_key * natural_scale).to(d_keys.dtype.element_ty), mask=inside)
    tl.store(d_values + offsets, d_value.to(d_values.dtype.element_ty), mask=inside)


@torch.library.custom_op("shardlab::documents_attention", mutates_args=())
def attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    bounds: torch.Tensor,
    slopes: torch.Tensor | None,
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the attention, [rows, length, heads, head size], and log2 of each query's sum, [rows, heads, length].

    Args:
        query, key, value: [rows, heads, length, head size]; keys and values perhaps with fewer heads.
        bounds: see attention.py.
        slopes: ALiBi's, [heads], fp32; None: no ALiBi.
        scale: of the scores.
    """
    rows, heads, length, size = query.shape
    out = query.new_empty(rows, length, heads, size)
    log_sum = query.new_empty(rows, heads, length, dtype=torch.float32)
    grid, strides, constants = _launch(query, key, value, slopes)
    _forward[grid(heads)](
        *(query, key, value, out, log_sum, bounds, _base_2(slopes), _base_2(scale), length, heads),
        *(_row_stride(bounds), *strides),
        **constants,
        num_stages=3,
    )
    return out, log_sum


@torch.library.custom_op("shardlab::documents_attention_backward", mutates_args=())
def _backward(
    d_out: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    out: torch.Tensor,
    log_sum: torch.Tensor,
    bounds: torch.Tensor,
    slopes: torch.Tensor | None,
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Gradients of query, key and value, each [rows, length, heads, head size]."""
    rows, heads, length, size = query.shape
    d_out, key_heads = d_out.contiguous(), key.shape[1]
    d_query = torch.empty_like(out)
    d_key, d_value = (of.new_empty(rows, length, key_heads, size) for of in (key, value))
    delta = torch.empty_like(log_sum)
    grid, strides, constants = _launch(query, key, value, slopes)
    numbers = (_base_2(slopes), _base_2(scale), scale, length, heads, _row_stride(bounds))
    _backward_queries[grid(heads)](
        *(query, key, value, out, d_out, d_query, log_sum, delta, bounds, *numbers, *strides), **constants, num_stages=2
    )
    _backward_keys[grid(key_heads)](
        *(query, key, value, d_out, d_key, d_value, log_sum, delta, bounds, *numbers, bounds.stride(0), *strides),
        **constants,
        num_stages=3 if size <= 64 else 1,  # more do not fit beside the tiles
    )
    return d_query, d_key, d_value


def _launch(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, slopes: torch.Tensor | None) -> Any:
    """Return the grid for a number of heads, the strides of the three, and the compiled constants."""
    rows, heads, length, size = query.shape
    strides = [stride for tensor in (query, key, value) for stride in tensor.stride()[:3]]
    constants = {"group": heads // key.shape[1], "size": size, "tile": BLOCK, "alibi": slopes is not None}
    constants["num_warps"] = WARPS if size <= 128 else 2 * WARPS
    return lambda count: (triton.cdiv(length, BLOCK), count, rows), strides, constants


def _base_2(number: Any) -> Any:
    return None if number is None else number * math.log2(math.e)


def _row_stride(bounds: torch.Tensor) -> int:
    """0 where all rows have the same documents."""
    return bounds.stride(1) if bounds.shape[1] > 1 else 0


@attend.register_fake
def _(query, key, value, bounds, slopes, scale):
    out = query.new_empty(query.shape).transpose(1, 2).contiguous()
    return out, query.new_empty(query.shape[:3], dtype=torch.float32)


@_backward.register_fake
def _(d_out, query, key, value, *_):
    return tuple(of.new_empty(of.shape).transpose(1, 2).contiguous() for of in (query, key, value))


def _save(ctx, inputs, output):
    *tensors, ctx.scale = inputs
    ctx.save_for_backward(*tensors, *output)
    ctx.mark_non_differentiable(output[1])


def _gradients(ctx, d_out, _):
    query, key, value, bounds, slopes, out, log_sum = ctx.saved_tensors
    gradients = _backward(d_out, query, key, value, out, log_sum, bounds, slopes, ctx.scale)
    return *(of.transpose(1, 2) for of in gradients), None, None, None


attend.register_autograd(_gradients, setup_context=_save)
