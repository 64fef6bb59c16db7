"""Hole 3, sharding a block: what FULL_SHARD does for a block in a forward and a backward pass (step 3 of fsdp.py)."""

import torch


def sharded_block(block: torch.nn.Module, shard: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
    """Returns the gradient of this rank's shard, summed over the ranks; it has the shard's shape.

    The block's parameters, each flattened, one after the other in the order of `block.parameters()`, then zeros up to
    a multiple of the number of ranks, are one long vector. Rank 0 has its first part, rank 1 the next; the parts are of
    the same length. Gather it, compute with it, and leave each rank the gradient of its own part.

    Args:
        block: its parameters hold zeros until you put the gathered weights there.
        shard: this rank's part of the weights, one dimension.
        inputs: of this rank; the others have their own. The loss is `block(inputs).square().sum()`.
    """
    raise NotImplementedError
