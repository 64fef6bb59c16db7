"""The data of a run: the first examples of a data set, encoded for the Trainer."""

from dataclasses import dataclass, field
from functools import partial
from typing import Any

from transformers import DataCollator, PreTrainedTokenizerBase

from workshop.conversations import encode_conversations, is_conversations, is_text, load_conversations, load_documents
from workshop.encoding import Encoded, PaddingCollator, encode_all
from workshop.errors import WorkshopError
from workshop.settings import Settings
from workshop.squad import Example, split_examples


@dataclass(frozen=True)
class Data:
    """Rows for the Trainer and what makes batches of them; SQuAD's examples also as text, for EM and F1."""

    train: list[Encoded]
    evaluation: list[Encoded]
    examples: list[Example]  # held out
    collator: DataCollator
    train_examples: list[Example] = field(default_factory=list)


def load_data(settings: Settings, tokenizer: PreTrainedTokenizerBase) -> Data:
    """The first TRAIN_SIZE training and EVAL_SIZE evaluation examples, prompt and padding masked out of the loss.

    Of SQuAD questions; of conversations (conversations.py); or of plain text, cut into rows of MAX_LENGTH tokens.
    """
    if is_text(settings.dataset):
        if settings.eval_dataset:
            raise WorkshopError(
                f"EVAL_DATASET={settings.eval_dataset}: of plain text the rows after TRAIN_SIZE are held out; expected "
                "it left out"
            )
        from workshop.text_rows import cut_into_rows

        return cut_into_rows(settings, tokenizer, load_documents(settings.dataset))
    chat = is_conversations(settings.dataset)
    if chat:
        needs_no_questions(settings)
    sizes = (settings.train_size, settings.eval_size)
    split: Any = partial(split_examples, load=load_conversations) if chat else split_examples
    train, evaluation = split(settings.dataset, *sizes, eval_dataset=settings.eval_dataset)
    encode = encode_conversations if chat else encode_all
    return Data(
        train=encode(train, tokenizer, settings.max_length, settings.labels),
        evaluation=encode(evaluation, tokenizer, settings.max_length, settings.labels),
        examples=[] if chat else evaluation,
        collator=PaddingCollator(
            tokenizer.pad_token_id, pad_to=settings.max_length if settings.padding == "max_length" else None
        ),
        train_examples=[] if chat else train,
    )


def needs_no_questions(settings: Settings) -> None:
    """Raises WorkshopError for settings that need SQuAD's questions and answers."""
    if settings.generate_size or settings.generate_train_size:
        raise WorkshopError(
            "plain text and conversations have no questions to score: expected GENERATE_SIZE=0 and "
            f"GENERATE_TRAIN_SIZE=0, found GENERATE_SIZE={settings.generate_size} and "
            f"GENERATE_TRAIN_SIZE={settings.generate_train_size}"
        )
