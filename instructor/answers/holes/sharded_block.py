"""Hole 3: an all-gather of the weights, a reduce-scatter of the gradients."""

import torch
import torch.distributed as dist
from torch.nn.functional import pad
from torch.nn.utils import parameters_to_vector, vector_to_parameters


def sharded_block(block, shard, inputs):
    weights = torch.empty(shard.numel() * dist.get_world_size())
    dist.all_gather_into_tensor(weights, shard)
    vector_to_parameters(weights, block.parameters())
    block(inputs).square().sum().backward()
    gradient = parameters_to_vector([parameter.grad for parameter in block.parameters()])
    own = torch.empty_like(shard)
    dist.reduce_scatter_tensor(own, pad(gradient, (0, weights.numel() - gradient.numel())))
    return own
