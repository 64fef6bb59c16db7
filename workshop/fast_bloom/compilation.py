"""torch.compile, block by block: fuses what lies between the matrix products of a block."""

from typing import Any

import torch
from transformers import PreTrainedModel


def compile_blocks(model: PreTrainedModel) -> None:
    """Compile the forward pass of every block of a BLOOM."""
    for block in model.transformer.h:
        block.forward = _compiled_for_training(block)


def _compiled_for_training(block: torch.nn.Module) -> Any:
    """The block's forward, compiled for the shape it is first trained with.

    Others run uncompiled, an epoch's last batch with fewer rows and the evaluation's: to compile them takes longer than
    it saves. Its forward, not the block: hooks around it (FSDP's, which gather its parameters) stay outside. All blocks
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
