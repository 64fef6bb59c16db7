"""Rows of plain text without padding: what a speed is measured with, because every position is a token and is trained.

Older material measures with random tokens (erratum B3). The arithmetic is the same, but nobody notices a wrong loss
then: of random tokens it cannot fall.
"""

from collections.abc import Iterable
from itertools import cycle, islice

import torch
from transformers import PreTrainedTokenizerBase

from workshop.data import Data, needs_no_questions
from workshop.encoding import Encoded, PaddingCollator
from workshop.settings import Settings
from workshop.squad import load_squad


def load_text(settings: Settings, tokenizer: PreTrainedTokenizerBase) -> Data:
    """TRAIN_SIZE and EVAL_SIZE rows of MAX_LENGTH tokens each: SQuAD's passages one after the other.

    A text that is too short begins again. DATASET=synthetic draws random tokens instead. Raises WorkshopError for
    settings that need questions and answers.
    """
    if settings.dataset == "synthetic":
        needs_no_questions(settings)
        draw = torch.Generator().manual_seed(settings.seed)
        shape = (settings.train_size + settings.eval_size, settings.max_length)
        return _data(settings, tokenizer, torch.randint(len(tokenizer), shape, generator=draw).tolist())
    passages = dict.fromkeys(example.context for example in load_squad(settings.dataset, "train"))
    return cut_into_rows(settings, tokenizer, passages)


def cut_into_rows(settings: Settings, tokenizer: PreTrainedTokenizerBase, documents: Iterable[str]) -> Data:
    """The data: as many rows as asked for, each of MAX_LENGTH tokens, with an end of sequence after each document."""
    needs_no_questions(settings)
    text: list[int] = []
    wanted = (settings.train_size + settings.eval_size) * settings.max_length
    for document in documents:
        text += [*tokenizer(document, verbose=False)["input_ids"], tokenizer.eos_token_id]
        if len(text) >= wanted:
            break
    tokens = islice(cycle(text), wanted)
    rows = [list(islice(tokens, settings.max_length)) for _ in range(settings.train_size + settings.eval_size)]
    return _data(settings, tokenizer, rows)


def _data(settings: Settings, tokenizer: PreTrainedTokenizerBase, rows: list[list[int]]) -> Data:
    encoded = [_row(tokens) for tokens in rows]
    collator = PaddingCollator(tokenizer.pad_token_id, settings.max_length)
    return Data(encoded[: settings.train_size], encoded[settings.train_size :], [], collator)


def _row(tokens: list[int]) -> Encoded:
    return {"input_ids": tokens, "attention_mask": [1] * len(tokens), "labels": tokens}
