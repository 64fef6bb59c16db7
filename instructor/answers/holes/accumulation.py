"""Hole 2: PyTorch adds gradients up by itself; what was sent must not be sent again."""

import torch.distributed as dist


def accumulation(model, micro_batches, loss_sum):
    for batch in micro_batches:
        loss_sum(model, batch).backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
