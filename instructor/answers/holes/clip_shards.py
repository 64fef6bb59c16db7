"""Hole 4: squares add up over the ranks, norms do not."""

import torch
import torch.distributed as dist


def clip_shards(gradients, max_norm):
    squares = sum((gradient.square().sum() for gradient in gradients), torch.zeros(()))
    dist.all_reduce(squares)
    norm = squares.sqrt()
    for gradient in gradients:
        gradient.mul_(torch.clamp(max_norm / norm, max=1.0))
    return norm
