"""What tp.py, cp.py and pp.py share and no lesson is about; by-hand's common.py and ddp.py have the rest."""

from collections.abc import Iterable

import torch
import torch.distributed as dist
from dimension_settings import DimensionSettings
from torch.distributed.tensor import DTensor
from torch.nn.functional import cross_entropy, pad
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from workshop.data.encoding import IGNORE


class LossHead(torch.nn.Linear):
    """The model's head, which gives the loss instead of the logits: summed over `targets`, a chunk at a time.

    It is a part of the model, so that sharded weights are gathered for it, and hooks see its input.
    """

    targets: torch.Tensor  # [rows, positions], of this forward pass
    chunk: int  # positions of a row whose logits exist at a time

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """The sum of the cross-entropies for `hidden` [rows, positions, hidden size]; of each chunk only this is kept.

        The backward pass computes a chunk's logits again.
        """
        starts = range(0, hidden.shape[1], self.chunk)
        chunks = [(hidden[:, i : i + self.chunk], self.targets[:, i : i + self.chunk]) for i in starts]
        if len(chunks) == 1:
            return self.loss_sum(*chunks[0])
        return sum(checkpoint(self.loss_sum, *chunk, use_reentrant=False) for chunk in chunks)

    def loss_sum(self, hidden: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        logits = super().forward(hidden).flatten(0, 1).float()
        return cross_entropy(logits, targets.flatten(), ignore_index=IGNORE, reduction="sum")


def use_loss_head(model: PreTrainedModel, settings: DimensionSettings) -> LossHead:
    """Make the model's `logits` the loss over the head's `targets`; its weights and their names stay."""
    head = model.get_output_embeddings()
    head.__class__ = LossHead
    head.chunk = settings.loss_chunk or settings.max_length
    return head


def next_tokens(labels: torch.Tensor) -> torch.Tensor:
    """The target of each position, [rows, positions]: position i predicts token i + 1, the last one nothing.

    Shifted before a row is split among ranks: none of them then has to know a neighbour's first token.
    """
    return pad(labels[:, 1:], (0, 1), value=IGNORE)


def parameter_groups(model: torch.nn.Module, weight_decay: float) -> list[dict]:
    """For the optimizer, which cannot update parameters of several meshes together; biases and norms do not decay."""
    groups: dict[tuple, list[torch.nn.Parameter]] = {}
    for parameter in model.parameters():
        key = (parameter.ndim > 1, getattr(parameter, "device_mesh", None))
        groups.setdefault(key, []).append(parameter)
    return [
        {"params": parameters, "weight_decay": weight_decay if decays else 0.0}
        for (decays, _), parameters in groups.items()
    ]


def clip_grad_norm(parameters: Iterable[torch.nn.Parameter], copies: int, max_norm: float = 1.0) -> torch.Tensor:
    """Scale the gradients to `max_norm` at most; gives their norm before, over all ranks.

    PyTorch's own refuses gradients of several meshes. Here each rank adds up the squares of what it holds, divided by
    the number of ranks that hold the same.

    Args:
        copies: ranks that hold a parameter that is no DTensor.
    """
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    local = [gradient.to_local() if isinstance(gradient, DTensor) else gradient for gradient in gradients]
    shares = [_copies(gradient, copies) for gradient in gradients]
    squares = sum(part.float().square().sum() / share for part, share in zip(local, shares, strict=True))
    dist.all_reduce(squares)
    norm = squares.sqrt()
    for part in local:
        part.mul_((max_norm / (norm + 1e-6)).clamp(max=1.0))
    return norm


def _copies(gradient: torch.Tensor, copies: int) -> int:
    """Ranks that hold the same part; a rank that has only a summand of a gradient has nothing to square."""
    if not isinstance(gradient, DTensor):
        return copies
    assert not any(place.is_partial() for place in gradient.placements), gradient.placements
    shards = 1
    for size, place in zip(gradient.device_mesh.shape, gradient.placements, strict=True):
        shards *= 1 if place.is_replicate() else size
    return dist.get_world_size() // shards
