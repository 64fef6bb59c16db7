"""The linear layers of FLOAT8 on tensors without numbers, without torchao, which machines without a GPU need not have.

What is in memory, and what is computed, as in torchao 0.18.0: float8_linear.py (the factors are kept for the backward
pass as they came, and cast for each of the three products), float8_scaling_utils.py (a scale from the largest number)
and float8_ops.py (a product needs its first factor by rows and its second by columns).
"""

from functools import partial
from typing import Any

import torch

from workshop.kernels.fast_models.float8 import fits

# The gradients' type in tensorwise scaling is another one of 8 bits, which is as large and as fast.
_TYPE = torch.float8_e4m3fn


def use_float8_on_meta(blocks: torch.nn.ModuleList, recipe: str) -> None:
    """Have the layers that use_float8 would replace take the memory of torchao's. Args: recipe: as use_float8's."""
    for module in blocks.modules():
        if recipe != "none" and fits(module, ""):
            module.forward = partial(_linear, module, recipe == "rowwise")


def _linear(layer: torch.nn.Linear, rowwise: bool, hidden: torch.Tensor) -> torch.Tensor:
    if torch.is_autocast_enabled():
        hidden = hidden.to(torch.get_autocast_dtype("cuda"))
    result = _Products.apply(hidden, layer.weight.t(), rowwise)
    return result if layer.bias is None else result + layer.bias.to(result.dtype)


class _Products(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: torch.Tensor, weight: torch.Tensor, rowwise: bool) -> torch.Tensor:
        """Args: hidden: [..., inputs]; weight: [inputs, outputs]."""
        ctx.save_for_backward(hidden, weight)
        ctx.rowwise = rowwise
        rows = _cast(hidden, -1, rowwise).reshape(-1, hidden.shape[-1])
        return _product(rows, _cast(weight, 0, rowwise), hidden.dtype).reshape(*hidden.shape[:-1], -1)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        hidden, weight = ctx.saved_tensors
        of_result = gradient.reshape(-1, gradient.shape[-1])
        cast = partial(_cast, rowwise=ctx.rowwise)
        of_hidden = _product(cast(of_result, -1), cast(weight, -1).t(), gradient.dtype)
        rows = hidden.reshape(-1, hidden.shape[-1])
        of_weight = _product(cast(of_result, 0).t(), cast(rows, 0), gradient.dtype)
        return of_hidden.reshape(hidden.shape), of_weight.t(), None


def _cast(tensor: torch.Tensor, dim: int, rowwise: bool) -> torch.Tensor:
    """In 8 bits. Args: dim: that has one scale, if each row has its own."""
    size = tensor.abs()
    largest = size.amax(dim, keepdim=True) if rowwise else size.max()
    most = torch.finfo(_TYPE).max
    scale = (most / largest.double()).float()
    return (tensor.float() * scale).clamp(-most, most).to(_TYPE)


def _product(left: torch.Tensor, right: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    one = torch.ones((), device=left.device)
    right = right.t().contiguous().t()
    return torch._scaled_mm(left.contiguous(), right, scale_a=one, scale_b=one, out_dtype=dtype)
