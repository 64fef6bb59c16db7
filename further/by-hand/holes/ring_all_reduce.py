"""Hole 5, a ring all-reduce: what NCCL does when DDP asks for the sum of the gradients."""

import torch


def ring_all_reduce(tensor: torch.Tensor) -> None:
    """Replaces the tensor by its sum over all ranks, in place, with send and receive alone.

    Each rank sends to the next one and receives from the one before. Cut the tensor into as many parts as there are
    ranks. First the parts travel once around the ring and are added up (a reduce-scatter), then the sums travel once
    around it (an all-gather). No message is longer than a part.

    Args:
        tensor: one dimension; its length need not be a multiple of the number of ranks. The test has three ranks.
    """
    raise NotImplementedError
