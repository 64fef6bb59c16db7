"""LoRA's adapters in a model without weights, and linear layers whose frozen weights have 4 bits (QLoRA)."""

from collections.abc import Iterable
from functools import partial
from typing import Any

import torch
from torch.nn import functional
from transformers import PreTrainedModel

from workshop.record.errors import InputError
from workshop.training.models import blocks_of, without_one_result

# Beside 4 bits per weight: 64 of them have an 8-bit scale, 256 scales an fp32 one. They are no parameters.
_SCALE_BYTES = 1 / 64 + 4 / (64 * 256)
_PACKED = torch.uint8


def with_adapters(
    model: PreTrainedModel, rank: int, dropout: float, targets: str, four_bits: bool, dtype: torch.dtype
) -> torch.nn.Module:
    """The model as further/lora/ makes it: frozen, with trained adapters of this type beside its linear layers."""
    from peft import LoraConfig, get_peft_model  # seconds to import

    if four_bits:
        _use_four_bits(blocks_of(model))
    layers = targets.replace(",", " ").split() or "all-linear"
    how = {"r": rank, "lora_dropout": dropout, "target_modules": layers, "exclude_modules": without_one_result(model)}
    model = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", **how))
    for name, module in model.named_modules():
        if name.endswith(("lora_A", "lora_B")):
            module.to(dtype)
        if four_bits and hasattr(module, "base_layer"):
            module.cast_input_dtype_enabled = False  # autocast does it: peft/tuners/lora/bnb.py
    return model


def _use_four_bits(blocks: torch.nn.ModuleList) -> None:
    """Have the linear layers take the memory of bitsandbytes' Linear4bit, which need not be installed.

    Raises InputError as the training does (workshop/training/four_bits.py).
    """
    layers = [layer for layer in blocks.modules() if type(layer) is torch.nn.Linear]
    if not layers:
        raise InputError(f"METHOD=qlora: {type(blocks[0]).__name__} has no torch.nn.Linear; expected METHOD=lora")
    for layer in layers:
        layer.forward = partial(_four_bit_linear, layer, layer.weight.shape)
        packed = torch.empty(layer.weight.numel() // 2, dtype=_PACKED, device=layer.weight.device)
        layer.weight = torch.nn.Parameter(packed, requires_grad=False)


def _four_bit_linear(layer: torch.nn.Linear, shape: torch.Size, hidden: torch.Tensor) -> torch.Tensor:
    """As in bitsandbytes 0.50.2, nn/modules.py: the result has the input's type; peft then copies it."""
    half = torch.bfloat16 if layer.bias is None else layer.bias.dtype
    return _FourBitProduct.apply(hidden.to(half), shape, layer.bias).to(hidden.dtype).clone()


class _FourBitProduct(torch.autograd.Function):
    """The whole weight is there while a product is computed: bitsandbytes' autograd/_functions.py, MatMul4Bit."""

    @staticmethod
    def forward(ctx: Any, hidden: torch.Tensor, shape: torch.Size, bias: torch.Tensor | None) -> torch.Tensor:
        ctx.shape = shape
        return functional.linear(hidden, hidden.new_empty(shape), bias)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        return gradient @ gradient.new_empty(ctx.shape), None, None


def numbers(parameter: torch.nn.Parameter) -> int:
    """How many it holds: two in a byte where they have 4 bits."""
    return parameter.numel() * (2 if parameter.dtype == _PACKED else 1)


def frozen_bytes(
    parameters: Iterable[torch.nn.Parameter], of_blocks: Iterable[torch.nn.Parameter], blocks: int
) -> dict[str, int]:
    """Bytes of the weights that are not trained, of those of a block, and of the scales of those with 4 bits."""
    frozen, of_blocks = ([one for one in some if not one.requires_grad] for some in (parameters, of_blocks))
    return {
        "bytes": sum(one.nbytes for one in frozen),
        "block_bytes": sum(one.nbytes for one in of_blocks) // blocks,
        "scale_bytes": int(_SCALE_BYTES * sum(numbers(one) for one in frozen if one.dtype == _PACKED)),
    }
