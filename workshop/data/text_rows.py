"""Rows of plain text without padding: what a speed is measured with, because every position is a token and is trained.

Older material measures with random tokens (erratum B3). The arithmetic is the same, but nobody notices a wrong loss
then: of random tokens it cannot fall.
"""

from collections.abc import Iterable
from itertools import cycle, islice

import torch
from transformers import PreTrainedTokenizerBase

from workshop.data.encoding import Encoded


def cut_into_rows(
    tokenizer: PreTrainedTokenizerBase, documents: Iterable[str], rows: int, length: int
) -> list[Encoded]:
    """`rows` rows of `length` tokens: the documents one after the other, each with an end of sequence.

    A text that is too short begins again.
    """
    text: list[int] = []
    for document in documents:
        text += [*tokenizer(document, verbose=False)["input_ids"], tokenizer.eos_token_id]
        if len(text) >= rows * length:
            break
    tokens = cycle(text)
    return [_row(list(islice(tokens, length))) for _ in range(rows)]


def random_rows(tokenizer: PreTrainedTokenizerBase, rows: int, length: int, seed: int) -> list[Encoded]:
    """As many rows of tokens drawn at random."""
    draw = torch.Generator().manual_seed(seed)
    return [_row(tokens) for tokens in torch.randint(len(tokenizer), (rows, length), generator=draw).tolist()]


def _row(tokens: list[int]) -> Encoded:
    return {"input_ids": tokens, "attention_mask": [1] * len(tokens), "labels": tokens}
