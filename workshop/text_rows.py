"""Rows of plain text without padding: what a speed is measured with, because every position is a token and is trained.

Older material measures with random tokens (erratum B3). The arithmetic is the same, but nobody notices a wrong loss
then: of random tokens it cannot fall.
"""

from itertools import cycle, islice

import torch
from transformers import PreTrainedTokenizerBase

from workshop.data import Data
from workshop.encoding import Encoded, PaddingCollator
from workshop.errors import WorkshopError
from workshop.settings import Settings
from workshop.squad import load_squad


def load_text(settings: Settings, tokenizer: PreTrainedTokenizerBase) -> Data:
    """TRAIN_SIZE and EVAL_SIZE rows of MAX_LENGTH tokens each: SQuAD's passages one after the other.

    A text that is too short begins again. DATASET=synthetic draws random tokens instead. Raises WorkshopError for
    settings that need questions and answers.
    """
    if settings.generate_size or settings.generate_train_size:
        raise WorkshopError(
            "plain text has no questions: expected GENERATE_SIZE=0 and GENERATE_TRAIN_SIZE=0, found "
            f"GENERATE_SIZE={settings.generate_size} and GENERATE_TRAIN_SIZE={settings.generate_train_size}"
        )
    if settings.dataset == "synthetic":
        draw = torch.Generator().manual_seed(settings.seed)
        shape = (settings.train_size + settings.eval_size, settings.max_length)
        rows = torch.randint(len(tokenizer), shape, generator=draw).tolist()
    else:
        rows = text_rows(settings, tokenizer)
    encoded = [_row(tokens) for tokens in rows]
    collator = PaddingCollator(tokenizer.pad_token_id, settings.max_length)
    return Data(encoded[: settings.train_size], encoded[settings.train_size :], [], collator)


def text_rows(settings: Settings, tokenizer: PreTrainedTokenizerBase) -> list[list[int]]:
    """As many rows as are asked for, each of MAX_LENGTH tokens; an end of sequence between two passages."""
    passages = dict.fromkeys(example.context for example in load_squad(settings.dataset, "train"))
    text: list[int] = []
    wanted = (settings.train_size + settings.eval_size) * settings.max_length
    for passage in passages:
        text += [*tokenizer(passage)["input_ids"], tokenizer.eos_token_id]
        if len(text) >= wanted:
            break
    tokens = islice(cycle(text), wanted)
    return [list(islice(tokens, settings.max_length)) for _ in range(settings.train_size + settings.eval_size)]


def _row(tokens: list[int]) -> Encoded:
    return {"input_ids": tokens, "attention_mask": [1] * len(tokens), "labels": tokens}
