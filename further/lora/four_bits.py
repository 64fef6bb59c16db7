"""QLoRA's frozen weights: 4 bits each in the format NF4, by bitsandbytes.

Source: Dettmers et al., arXiv:2305.14314. 64 weights share a scale; 256 scales, in 8 bits, share one themselves (double
quantization). The bytes are stored in a tensor of bf16: FSDP2 does not shard integer tensors, it leaves them whole on
every rank with a warning. The scales are no parameters, so every rank has all of them.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from bitsandbytes.nn import Linear4bit, Params4bit

from workshop.private_names import save_as_plain_linear
from workshop.record.errors import InputError
from workshop.training.models import blocks_of


def quantize_blocks(model: torch.nn.Module, compute_dtype: torch.dtype) -> None:
    """Give the blocks' linear layers 4-bit weights, in place; products are computed in `compute_dtype`.

    It also works for random weights. Under ZeRO-3 each layer is gathered for it, and sharded again when the Trainer
    wraps the model. Raises InputError for a model without torch.nn.Linear layers.
    """
    model.is_loaded_in_4bit = True  # peft then takes its own layer for them
    found = False
    for parent in blocks_of(model).modules():
        for name, layer in list(parent.named_children()):
            if type(layer) is torch.nn.Linear:
                setattr(parent, name, _in_four_bits(layer, compute_dtype))
                found = True
    if not found:
        raise InputError(f"METHOD=qlora: {type(model).__name__} has no torch.nn.Linear; expected METHOD=lora")


class FrozenLinear4bit(Linear4bit):
    """Keeps its scales out of the adapters' checkpoints: they are no parameters, so DeepSpeed would save them."""

    def _save_to_state_dict(self, *state: Any) -> None:
        save_as_plain_linear(self, *state)


def _in_four_bits(layer: torch.nn.Linear, compute_dtype: torch.dtype) -> FrozenLinear4bit:
    sizes = (layer.in_features, layer.out_features, layer.bias is not None)
    storage = {"quant_type": "nf4", "quant_storage": torch.bfloat16, "compress_statistics": True}
    small = FrozenLinear4bit(*sizes, compute_dtype=compute_dtype, device="meta", **storage)
    small.bias = layer.bias
    small.support_avx512bf16_for_cpu = False  # it would pack the bytes anew for inference, which breaks shards
    with _gathered(layer.weight):
        whole = Params4bit(layer.weight.data, module=small, **storage)
        small.weight = whole.to(layer.weight.device)  # this quantizes
    return small


def _gathered(weight: torch.nn.Parameter) -> AbstractContextManager:
    if not hasattr(weight, "ds_id"):  # ZeRO-3's mark
        return nullcontext()
    import deepspeed

    return deepspeed.zero.GatheredParameters(weight)
