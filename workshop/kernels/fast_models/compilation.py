"""torch.compile, block by block: fuses what lies between the matrix products of a block."""

import gc
from itertools import count
from typing import Any

import torch


def compile_blocks(blocks: torch.nn.ModuleList) -> None:
    """Compile the forward pass of every block."""
    for block in blocks:
        block.forward = _compiled_for_training(block)
    freeze_heap_after_compiling(blocks[0])


def _compiled_for_training(block: torch.nn.Module) -> Any:
    """Return the block's forward, compiled for the shape of the first training batch.

    Other shapes run uncompiled, as an epoch's last batch and the evaluation: compiling them takes longer than it saves.
    The forward is compiled, not the block: hooks around it (FSDP's, which gather parameters) stay outside. All blocks
    have the same code and shapes, so this compiles once.
    """
    plain = block.forward
    compiled = torch.compile(plain, dynamic=False)
    trained_shape = None

    def forward(hidden: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        nonlocal trained_shape
        if block.training and trained_shape is None:
            trained_shape = hidden.shape
        fits = block.training and hidden.shape == trained_shape
        return (compiled if fits else plain)(hidden, *args, **kwargs)

    return forward


def freeze_heap_after_compiling(model: torch.nn.Module) -> None:
    """Exclude all objects from Python's garbage collection once forward and backward are compiled.

    The libraries and the compiler's results are half a million objects that stay. Searching them takes the collector
    0.4 s, two to three steps of the ladder's top, in the middle of the training.
    """
    forwards = count(1)

    def freeze(module: torch.nn.Module, _: Any) -> None:
        if module.training and next(forwards) == 3:
            gc.collect()
            gc.freeze()
            hook.remove()

    hook = model.register_forward_pre_hook(freeze)
