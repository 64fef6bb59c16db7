"""The head of long rows (dimensions/): logits of few positions at a time."""

import torch
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import checkpoint

from workshop.data.encoding import IGNORE


class LossHead(torch.nn.Linear):
    """The model's head, which gives the loss instead of the logits: summed over `targets`, a chunk at a time.

    It is a part of the model, so that sharded weights are gathered for it, and hooks see its input.
    """

    targets: torch.Tensor  # [rows, positions], of this forward pass
    chunk: int  # positions of a row whose logits exist at a time

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """The sum of the cross-entropies for `hidden` [rows, positions, hidden size]; backward computes logits anew."""
        starts = range(0, hidden.shape[1], self.chunk)
        chunks = [(hidden[:, i : i + self.chunk], self.targets[:, i : i + self.chunk]) for i in starts]
        if len(chunks) == 1:
            return self.loss_sum(*chunks[0])
        return sum(checkpoint(self.loss_sum, *chunk, use_reentrant=False) for chunk in chunks)

    def loss_sum(self, hidden: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        logits = super().forward(hidden).flatten(0, 1).float()
        return cross_entropy(logits, targets.flatten(), ignore_index=IGNORE, reduction="sum")
