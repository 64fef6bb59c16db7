"""Varlen attention of short documents packed into rows: a query sees only the keys of its document.

flex_attention works in blocks of 128 x 128 and reads a mask to know which of them to compute; a document of 170 tokens
fills little of them. This kernel works in blocks of 64 and needs two numbers per token, its document's start and end.
It runs on a GPU only (documents_triton.py).
"""

import torch
from torch.nn import functional


def bounds(documents: torch.Tensor | None, length: int, device: torch.device) -> torch.Tensor:
    """Return start and end of each token's document, int32 [2, rows, 1, length]; without documents of one row.

    Args: documents: [rows, length], each token's document; None: one per row.
    """
    if documents is None:
        documents = torch.zeros(1, length, dtype=torch.int32, device=device)
    place = torch.arange(length, device=device)
    last = documents != functional.pad(documents[:, 1:], (0, 1), value=-1)
    ends = (place + 1).masked_fill(~last, length).flip(1).cummin(dim=1).values.flip(1)
    return torch.stack([starts(documents), ends]).int().unsqueeze(2).contiguous()


def starts(documents: torch.Tensor) -> torch.Tensor:
    """Return the start of each token's document in its row; [rows, length] as `documents`."""
    first = documents != functional.pad(documents[:, :-1], (1, 0), value=-1)
    return (torch.arange(documents.shape[1], device=documents.device) * first).cummax(dim=1).values


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
        bounds: see there.
        slopes: ALiBi's, [heads], fp32; None: no ALiBi.
        scale: of the scores.
    """
    from workshop.kernels.fast_models.documents_triton import forward

    return forward(query, key, value, bounds, slopes, scale)


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
    from workshop.kernels.fast_models.documents_triton import backward

    return backward(d_out.contiguous(), query, key, value, out, log_sum, bounds, slopes, scale)


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
    found = _backward(d_out, query, key, value, out, log_sum, bounds, slopes, ctx.scale)
    return *(of.transpose(1, 2) for of in found), None, None, None


attend.register_autograd(_gradients, setup_context=_save)
