"""Matrix products of the blocks in 8-bit floating point: twice bf16's peak on an H100, and no longer the same function.

Each product's factors are scaled into the range of 8 bits: e4m3 (3 bits of mantissa) forward, e5m2 (2 bits) for
gradients, then multiplied by the tensor cores and summed in fp32. Unchanged are the weights (fp32, with FSDP2 bf16
copies), the optimizer, the norms, attention, and head and loss, whose gradients are the smallest.

torchao replaces the blocks' linear layers by its own. Source: Micikevicius et al.,
arXiv:2209.05433, and torchao's float8 training, arXiv:2507.16099.
"""

from dataclasses import replace

import torch

LEAST = 512  # inputs x outputs / (inputs + outputs); below it bf16 was faster (Qwen2.5 0.5B on an H200: 896 x 896)


def use_float8(blocks: torch.nn.ModuleList, recipe: str, emulate: bool = False) -> None:
    """Compute the products of the blocks' linear layers in float8. Compile the blocks, or scaling costs what it gains.

    Args:
        recipe: tensorwise, one scale each, the fastest; rowwise, one per row, the more accurate; "none" leaves them.
        emulate: round as float8 does, and multiply in the type that the factors had: for a machine without float8.
    """
    if recipe == "none":
        return
    from torchao.float8 import Float8LinearConfig, convert_to_float8_training

    config = replace(Float8LinearConfig.from_recipe_name(recipe), emulate=emulate)
    convert_to_float8_training(blocks, config=config, module_filter_fn=_in_sixteens if emulate else fits)


def fits(module: torch.nn.Module, name: str) -> bool:
    """Return whether float8 makes this layer faster: work grows with inputs x outputs, casts with inputs + outputs."""
    return _in_sixteens(module, name) and 1 / (1 / module.in_features + 1 / module.out_features) >= LEAST


def _in_sixteens(module: torch.nn.Module, name: str) -> bool:
    """Return whether the sizes are multiples of 16, as the tensor cores need."""
    return isinstance(module, torch.nn.Linear) and module.in_features % 16 == module.out_features % 16 == 0
