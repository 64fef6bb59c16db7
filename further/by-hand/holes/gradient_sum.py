"""Hole 1, the gradient sum: what DDP does after the backward pass (step 6 of ddp.py)."""

import torch


def gradient_sum(parameters: list[torch.nn.Parameter]) -> None:
    """Replaces each parameter's gradient by the sum of all ranks' gradients, on every rank.

    Args:
        parameters: in the same order and of the same shapes on all ranks; each has its own rank's `.grad`.
    """
    raise NotImplementedError
