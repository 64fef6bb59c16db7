"""Differences of CUDA from the meta device: autocast, fused attention, dropout.

torch.autocast leaves meta tensors alone, the meta device takes the slow forms of attention and dropout, and
flex_attention has no backward pass there.
"""

from collections.abc import Iterator
from contextlib import ContextDecorator, ExitStack, contextmanager, nullcontext
from typing import Any
from unittest.mock import patch

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map_only
from torch.utils.flop_counter import register_flop_formula, sdpa_backward_flop_count, sdpa_flop_count
from transformers import masking_utils as masks

from workshop.kernels.fast_models import attention
from workshop.kernels.fast_models import loss as chunked_loss

HALF = {"fp16": torch.float16, "bf16": torch.bfloat16}
# Of CUDA's lists what our models call. Source: torch.amp's documentation, "CUDA Ops that can autocast to ...".
_NARROW = {
    *(torch.matmul, torch.bmm, torch.baddbmm, torch.addmm, functional.linear, functional.scaled_dot_product_attention),
    *(torch.Tensor.matmul, torch.Tensor.__matmul__, torch.Tensor.bmm, torch.Tensor.baddbmm, torch.Tensor.addmm),
}
_WIDE = {
    *(torch.softmax, torch.pow, torch.layer_norm, functional.softmax, functional.layer_norm),
    *(functional.cross_entropy, functional.nll_loss, functional.log_softmax),
    *(torch.Tensor.softmax, torch.Tensor.pow, torch.Tensor.sum, torch.Tensor.log_softmax),
}


class OnCuda(ContextDecorator, TorchFunctionMode):
    """A forward pass with CUDA's attention and dropout, and torch.autocast("cuda", dtype), which is off for None.

    A weight is cast once per forward pass; the copy lives as long as its users.
    """

    def __init__(self, dtype: torch.dtype | None) -> None:
        super().__init__()
        self.dtype = dtype
        self.casted: dict[int, torch.Tensor] = {}

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self.casted.clear()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.dtype and (func in _NARROW or func in _WIDE):
            cast = self._narrow if func in _NARROW else _wide
            args, kwargs = tree_map_only(torch.Tensor, cast, (args, kwargs))
        return _KERNELS.get(func, func)(*args, **kwargs)

    def _narrow(self, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.dtype != torch.float32:
            return tensor
        if not (tensor.is_leaf and tensor.requires_grad):
            return tensor.to(self.dtype)
        if id(tensor) not in self.casted:
            self.casted[id(tensor)] = tensor.to(self.dtype)
        return self.casted[id(tensor)]


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.float() if tensor.dtype in HALF.values() else tensor


@contextmanager
def mimic_cuda(autocast: torch.dtype | None, loss: str, narrow: bool = False) -> Iterator[None]:
    """torch answers questions about autocast as on CUDA; flex_attention, experts and chunked loss are those of a GPU.

    Args: autocast: None: it is off; narrow: experts multiply in its type (fast_models), not in their weights'.
    """
    on, dtype = torch.is_autocast_enabled, torch.get_autocast_dtype
    half, own = autocast or torch.float16, autocast if narrow else None
    replaced = {
        # PyTorch refuses these questions about a device without autocast.
        (torch, "is_autocast_enabled"): lambda *of: bool(autocast) if of in (("meta",), ()) else on(*of),
        (torch, "get_autocast_dtype"): lambda *of: half if of in (("meta",), ("cuda",)) else dtype(*of),
        (torch, "autocast"): lambda *_, **__: nullcontext(),
        (chunked_loss, "_loss_and_gradient"): _fused_loss_and_gradient if loss == "chunked" else _in_place,
        (attention, "_flex_kernel"): lambda _: lambda query, key, value, **_: _flex(query, key, value)[0],
        (masks, "find_packed_sequence_indices"): lambda _: None,  # would read numbers
        (functional, "grouped_mm"): lambda *factors, **_: _experts(*(one.to(own or one.dtype) for one in factors)),
    }
    with ExitStack() as stack:
        for (module, name), ours in replaced.items():
            stack.enter_context(patch.object(module, name, ours))
        yield


@torch.library.custom_op("shardlab::flex_attention", mutates_args=())
def _flex(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The sizes of flex_attention's results: [rows, heads, length, size of a value], and a logarithm per query."""
    return torch.empty_like(query[..., : value.shape[-1]]), query.new_empty(query.shape[:3], dtype=torch.float32)


@torch.library.custom_op("shardlab::flex_attention_backward", mutates_args=())
def _flex_backward(
    gradient: torch.Tensor, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, kept: list[torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return torch.empty_like(query), torch.empty_like(key), torch.empty_like(value)


_flex.register_fake(_flex._init_fn)
_flex_backward.register_fake(_flex_backward._init_fn)


def _flex_gradients(ctx: Any, gradient: torch.Tensor, _: torch.Tensor) -> tuple[torch.Tensor, ...]:
    query, key, value, *kept = ctx.saved_tensors  # read once: checkpointing computes them again
    return _flex_backward(gradient, query, key, value, kept)


_flex.register_autograd(
    _flex_gradients,
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs, *output),
)


@torch.library.custom_op("shardlab::grouped_mm", mutates_args=())
def _experts(rows: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """The size of torch's grouped_mm: rows [rows, inputs] by their experts' weights [experts, inputs, outputs]."""
    return rows.new_empty(len(rows), weights.shape[-1])


@torch.library.custom_op("shardlab::grouped_mm_backward", mutates_args=())
def _experts_backward(
    gradient: torch.Tensor, rows: torch.Tensor, weights: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.empty_like(rows), weights.new_empty(weights.shape)


_experts.register_fake(_experts._init_fn)
_experts_backward.register_fake(_experts_backward._init_fn)
_experts.register_autograd(
    lambda ctx, gradient: _experts_backward(gradient, *ctx.saved_tensors),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)


# Of the experts a row meets its own: the rows of all experts together are the positions times the experts of each.
_EXPERTS = torch.ops.shardlab.grouped_mm, torch.ops.shardlab.grouped_mm_backward
register_flop_formula(_EXPERTS[0])(lambda rows, weights, **_: 2 * rows.numel() * weights[-1])
register_flop_formula(_EXPERTS[1])(lambda gradient, rows, weights, **_: 4 * rows.numel() * weights[-1])
# No position left out, as for the other kernels.
_FLEX = torch.ops.shardlab.flex_attention, torch.ops.shardlab.flex_attention_backward
register_flop_formula(_FLEX[0])(lambda *shapes, **_: sdpa_flop_count(*shapes))
register_flop_formula(_FLEX[1])(lambda *shapes, **_: sdpa_backward_flop_count(*shapes[:4]))


def _attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    **_: Any,
) -> torch.Tensor:
    """The memory-efficient kernel, which takes a mask: it keeps its output and a logarithm per query."""
    if key.shape != query.shape:  # fewer heads of keys: only flash attention's kernel, which keeps the same
        return _flex(query, key, value)[0]
    if attn_mask is not None:
        attn_mask = attn_mask.to(query.dtype).expand(*query.shape[:3], key.shape[2])
    return torch.ops.aten._scaled_dot_product_efficient_attention(
        query, key, value, attn_mask, True, dropout_p, is_causal, scale=scale
    )[0]


def _dropout(tensor: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> torch.Tensor:
    return torch.native_dropout(tensor, p, True)[0] if training and p else tensor


# Which CUDA chooses where the meta device would compute step by step.
_KERNELS = {functional.scaled_dot_product_attention: _attention, functional.dropout: _dropout}


def _fused_loss_and_gradient(logits: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """One kernel on a GPU: nothing but its two results is ever in memory."""
    return torch.zeros((), device=logits.device), torch.empty_like(logits)


def _in_place(logits: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Liger Kernel's, which needs a GPU, writes the gradient over the logits."""
    return torch.zeros((), device=logits.device), logits
