"""Hole 2, accumulation without communication: several micro-batches, whose gradients are sent once (step 6)."""

from collections.abc import Callable

import torch

Batch = list[torch.Tensor]


def accumulation(
    model: torch.nn.Module, micro_batches: list[Batch], loss_sum: Callable[[torch.nn.Module, Batch], torch.Tensor]
) -> None:
    """Leaves in each parameter's `.grad` the gradient of the loss over all micro-batches of all ranks, on every rank.

    The ranks send their gradients once: after the last micro-batch.

    Args:
        model: with the same weights on all ranks, and without gradients.
        micro_batches: of this rank; the other ranks have as many.
        loss_sum: gives the loss of a micro-batch, summed over its examples. The loss of all is the sum of these.
    """
    raise NotImplementedError
