"""Hole 3: an all-gather of the weights, a reduce-scatter of the gradients."""

import torch
import torch.distributed as dist
from torch.nn.functional import pad
from torch.nn.utils import parameters_to_vector, vector_to_parameters


def sharded_block(block, shard, inputs):
    shards = [torch.empty_like(shard) for _ in range(dist.get_world_size())]
    dist.all_gather(shards, shard)
    vector_to_parameters(torch.cat(shards), block.parameters())
    block(inputs).square().sum().backward()
    gradient = parameters_to_vector([parameter.grad for parameter in block.parameters()])
    padded = pad(gradient, (0, shard.numel() * len(shards) - gradient.numel()))
    own = torch.empty_like(shard)
    dist.reduce_scatter(own, list(padded.chunk(len(shards))))
    return own
