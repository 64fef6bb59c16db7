"""Hole 1: a sum, not DDP's mean; in place, so that the optimizer finds it."""

import torch
import torch.distributed as dist


def gradient_sum(parameters: list[torch.nn.Parameter]) -> None:
    for parameter in parameters:
        dist.all_reduce(parameter.grad)
