"""Which token each position predicts, and which positions predict one at all: only the answer's have a target."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

IGNORE = -100  # the label of a position without a target, as in torch.nn.CrossEntropyLoss


def next_targets(labels: torch.Tensor) -> torch.Tensor:
    """What each position is to predict, flat: the label of the next one of its row; IGNORE at the row's end."""
    return functional.pad(labels[:, 1:], (0, 1), value=IGNORE).flatten()


@dataclass(frozen=True)
class LabelledOnly:
    """Makes batches as `collator` does, and adds `target_positions`: the flat positions whose next token is a target.

    Here and not on the GPU, where their number would be something that the CPU has to wait for.
    """

    collator: Callable[[list[dict[str, list[int]]]], dict[str, Any]]

    def __call__(self, rows: list[dict[str, list[int]]]) -> dict[str, Any]:
        batch = self.collator(rows)
        return batch | {"target_positions": (next_targets(batch["labels"]) != IGNORE).nonzero().squeeze(1)}
