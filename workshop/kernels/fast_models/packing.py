"""Packing: several short examples in one row, and the positions that have a target.

`document_ids` (from 1) tell a row's examples apart: attention masks across them (attention.py), and the first token of
an example is not a target, so every example has the loss that it has alone. Rows are made once, so the same examples
share a row in every epoch; rows are shuffled as usual.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

from workshop.data.encoding import IGNORE, Encoded


def pack(examples: Sequence[Encoded], length: int) -> list[Encoded]:
    """Return rows of at most `length` tokens with every example once, whole: best fit, longest first.

    The result has `input_ids`, `attention_mask`, `labels` and `document_ids`, each a list per row. No example may be
    longer than `length`; encode_all sees to that.
    """
    rows: list[list[Encoded]] = []
    space: list[tuple[int, int]] = []  # (free tokens, row), sorted; full rows are left out
    for example in sorted(examples, key=lambda example: len(example["input_ids"]), reverse=True):
        size = len(example["input_ids"])
        tightest = bisect_left(space, (size, 0))
        if tightest < len(space):
            free, row = space.pop(tightest)
        else:
            free, row = length, len(rows)
            rows.append([])
        rows[row].append(example)
        if free > size:
            insort(space, (free - size, row))
    return [_row(row) for row in rows]


def _row(examples: list[Encoded]) -> Encoded:
    row: Encoded = {"input_ids": [], "attention_mask": [], "labels": [], "document_ids": []}
    for number, example in enumerate(examples, start=1):
        size = len(example["input_ids"])
        row["input_ids"] += example["input_ids"]
        row["attention_mask"] += [1] * size
        # The token before it is another example's last one, which must not learn to predict it.
        row["labels"] += [IGNORE, *example["labels"][1:]]
        row["document_ids"] += [number] * size
    return row


def next_targets(labels: torch.Tensor) -> torch.Tensor:
    """Return each position's target, [rows, positions]: the label of the row's next position; IGNORE at its end."""
    return functional.pad(labels[:, 1:], (0, 1), value=IGNORE)


@dataclass(frozen=True)
class LabelledOnly:
    """Makes batches as `collator` does, and adds `target_positions`: the flat positions whose next token is a target.

    Here, not on the GPU: the CPU would have to wait for their number.
    """

    collator: Callable[[list[Encoded]], dict[str, Any]]

    def __call__(self, rows: list[Encoded]) -> dict[str, Any]:
        batch = self.collator(rows)
        return batch | {"target_positions": (next_targets(batch["labels"]).flatten() != IGNORE).nonzero().squeeze(1)}
