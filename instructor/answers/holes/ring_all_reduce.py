"""Hole 5: 2 (N - 1) messages of a part each, whatever N is."""

import torch
import torch.distributed as dist


def ring_all_reduce(tensor):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    parts = list(tensor.tensor_split(ranks))  # views: what is written there is in the tensor
    for step in range(2 * (ranks - 1)):
        sent, received = parts[(rank - step) % ranks], parts[(rank - step - 1) % ranks]
        message = torch.empty_like(received)
        sending = dist.isend(sent.clone(), (rank + 1) % ranks)  # not send: all would wait for a receiver
        dist.recv(message, (rank - 1) % ranks)
        sending.wait()
        if step < ranks - 1:
            received += message
        else:
            received.copy_(message)
