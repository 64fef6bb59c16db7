"""The data of a run: the first examples of a data set, encoded for the Trainer."""

from dataclasses import dataclass, field

from transformers import DataCollator, PreTrainedTokenizerBase

from workshop.encoding import Encoded, PaddingCollator, encode_all
from workshop.settings import Settings
from workshop.squad import Example, split_examples


@dataclass(frozen=True)
class Data:
    """Rows for the Trainer and what makes batches of them; examples of both kinds also as text, for EM and F1."""

    train: list[Encoded]
    evaluation: list[Encoded]
    examples: list[Example]  # held out
    collator: DataCollator
    train_examples: list[Example] = field(default_factory=list)


def load_data(settings: Settings, tokenizer: PreTrainedTokenizerBase) -> Data:
    """The first TRAIN_SIZE training and EVAL_SIZE evaluation examples, prompt and padding masked out of the loss."""
    train, evaluation = split_examples(
        settings.dataset, settings.train_size, settings.eval_size, eval_dataset=settings.eval_dataset
    )
    return Data(
        train=encode_all(train, tokenizer, settings.max_length, settings.labels),
        evaluation=encode_all(evaluation, tokenizer, settings.max_length, settings.labels),
        examples=evaluation,
        collator=PaddingCollator(
            tokenizer.pad_token_id, pad_to=settings.max_length if settings.padding == "max_length" else None
        ),
        train_examples=train,
    )
