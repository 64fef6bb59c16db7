"""The data of a run: the first examples of a data set, encoded for the Trainer."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from datasets import Dataset, Features, IterableDataset, List, Value
from datasets.fingerprint import Hasher
from filelock import FileLock
from transformers import DataCollator, PreTrainedTokenizerBase

from run_folder.plural import counted
from workshop.data.encoding import Encoded, PaddingCollator, encode_all, encode_conversations
from workshop.data.rows import Row
from workshop.data.sources import cache_folder, examples_of, load_splits, mapped, split_of
from workshop.data.squad import Example
from workshop.data.text_rows import cut_into_rows, random_rows
from workshop.errors import WorkshopError
from workshop.job.checkpoints import manifest
from workshop.settings import Settings

HELD_OUT = ("validation", "test")
ENCODED = Features(
    {"input_ids": List(Value("int32")), "attention_mask": List(Value("int8")), "labels": List(Value("int32"))}
)


@dataclass(frozen=True)
class Data:
    """Rows for the Trainer and what makes batches of them; SQuAD's examples to answer also as text, for EM and F1."""

    train: Sequence[Encoded] | IterableDataset  # text's are a list, others' a Dataset on disk; a stream has no length
    evaluation: Sequence[Encoded]
    examples: list[Example]  # held out, GENERATE_SIZE of them
    collator: DataCollator
    train_examples: list[Example] = field(default_factory=list)


def load_data(settings: Settings, tokenizer: PreTrainedTokenizerBase) -> Data:
    """The first TRAIN_SIZE training and EVAL_SIZE evaluation examples, prompt and padding masked out of the loss.

    Of SQuAD questions; of conversations; or of plain text, cut into rows of MAX_LENGTH tokens. The first process of a
    node reads and encodes them, into the cache; the others wait at its lock, not in a collective, which would time out.
    """
    with FileLock(cache_folder() / f"{Hasher.hash([settings.dataset, settings.eval_dataset])}.lock"):
        splits = load_splits(settings.dataset, settings.streaming)
        if "text" in split_of(settings.dataset, splits, "train").column_names:
            if settings.eval_dataset:
                raise WorkshopError(
                    f"EVAL_DATASET={settings.eval_dataset}: of plain text the rows after TRAIN_SIZE are held out; "
                    "expected it left out"
                )
            return load_text(settings, tokenizer)
        train, evaluation = (stream_rows if settings.streaming else split_rows)(settings, splits)
        encoded = [_encoded(rows, settings, tokenizer) for rows in (train, evaluation)]
    pad_to = settings.max_length if settings.padding == "max_length" else None
    collator = PaddingCollator(tokenizer.pad_token_id, pad_to)
    if "messages" in train.column_names:
        note_unscored(settings)
        return Data(*encoded, [], collator)
    asked, known = _first(evaluation, settings.generate_size), _first(train, settings.generate_train_size)
    return Data(*encoded, examples_of(asked), collator, examples_of(known))


def load_text(settings: Settings, tokenizer: PreTrainedTokenizerBase) -> Data:
    """TRAIN_SIZE and EVAL_SIZE rows of MAX_LENGTH tokens each, every one a target: documents, or SQuAD's passages.

    DATASET=synthetic draws random tokens instead.
    """
    if settings.streaming:
        raise WorkshopError("STREAMING=true: plain text is cut into rows before the training; expected STREAMING=false")
    note_unscored(settings)
    size = (settings.train_size + settings.eval_size, settings.max_length)
    if settings.dataset == "synthetic":
        rows = random_rows(tokenizer, *size, settings.seed)
    else:
        documents = split_of(settings.dataset, load_splits(settings.dataset), "train")
        if "messages" in documents.column_names:
            raise WorkshopError(f"DATASET={settings.dataset}: found conversations, expected text or SQuAD's passages")
        texts = documents["text"] if "text" in documents.column_names else dict.fromkeys(documents["context"])
        rows = cut_into_rows(tokenizer, texts, *size)
    collator = PaddingCollator(tokenizer.pad_token_id, settings.max_length)
    return Data(rows[: settings.train_size], rows[settings.train_size :], [], collator)


def split_rows(settings: Settings, splits: dict[str, Dataset]) -> tuple[Dataset, Dataset]:
    """TRAIN_SIZE rows to train on and EVAL_SIZE others to evaluate on, the first ones of their split.

    A file or a slice has no splits: training takes its first rows, evaluation its last, unless EVAL_DATASET names a
    data set of its own; of one that has fewer rows than the two sizes, both take their share. Raises WorkshopError if
    there are too few, or if a row is in both.
    """
    name, other = settings.dataset, settings.eval_dataset or settings.dataset
    train_size, eval_size = settings.train_size, settings.eval_size
    train = split_of(name, splits, "train")
    if not settings.eval_dataset and not {*HELD_OUT} & {*splits}:
        if (both := train_size + eval_size) > len(train):
            if len(train) < 2:
                raise WorkshopError(f"DATASET={name}: found {counted(len(train), 'example')}, expected 2 or more")
            train_size = min(max(1, round(len(train) * train_size / both)), len(train) - 1)
            eval_size = len(train) - train_size
            shares = f"{train_size} to train on, {eval_size} held out"
            _note(f"{name} has {len(train)} examples, fewer than TRAIN_SIZE + EVAL_SIZE = {both}: {shares}")
        return train.select(range(train_size)), train.select(range(len(train) - eval_size, len(train)))
    evaluation = split_of(other, load_splits(other) if settings.eval_dataset else splits, *HELD_OUT, "train")
    _check_same_kind(settings, train, evaluation)
    for variable, asked, rows, dataset in (("TRAIN", train_size, train, name), ("EVAL", eval_size, evaluation, other)):
        if asked > len(rows):
            found = f"{counted(len(rows), 'example')} in {dataset}"
            raise WorkshopError(f"{variable}_SIZE={asked}: found {found}, expected at most as many")
    train, evaluation = train.select(range(train_size)), evaluation.select(range(eval_size))
    if shared := {*train["id"]} & {*evaluation["id"]}:
        raise WorkshopError(
            f"EVAL_DATASET={other}: found {len(shared)} of its examples among the training "
            f"examples too (for instance id {min(shared)}), expected none"
        )
    return train, evaluation


def stream_rows(settings: Settings, splits: dict[str, IterableDataset]) -> tuple[IterableDataset, Dataset]:
    """Rows to train on as they are read, from where RESUME_FROM had come, and EVAL_SIZE others in memory.

    The stream begins again at its end. A file's first EVAL_SIZE rows are held out, for nobody knows its last ones.
    Give it to the Trainer as it is: accelerate reads it on one rank and shares each batch out.
    """
    name, other = settings.dataset, settings.eval_dataset or settings.dataset
    train = split_of(name, splits, "train")
    held_out = split_of(other, load_splits(other, True) if settings.eval_dataset else splits, *HELD_OUT, "train")
    _check_same_kind(settings, train, held_out)
    evaluation = Dataset.from_list([*held_out.take(settings.eval_size)], features=held_out.features)
    train = train.skip(settings.eval_size) if held_out is train else train
    if next(iter(train), None) is None:
        raise WorkshopError(f"DATASET={name}: found {counted(len(evaluation), 'example')}, all held out; expected more")
    rows_read = manifest(Path(settings.resume_from)).get("rows_read", 0) if settings.resume_from else 0
    return train.repeat(None).skip(rows_read), evaluation


def _check_same_kind(settings: Settings, train: Any, held_out: Any) -> None:
    if held_out.column_names != train.column_names:
        raise WorkshopError(
            f"EVAL_DATASET={settings.eval_dataset}: found rows of another kind, expected the kind of "
            f"DATASET={settings.dataset}"
        )


def _encoded(rows: Dataset | IterableDataset, settings: Settings, tokenizer: PreTrainedTokenizerBase) -> Any:
    def encode(_: list[int], some: list[Row]) -> list[Encoded]:
        limits = (tokenizer, settings.max_length, settings.labels)
        if "messages" in some[0]:
            return encode_conversations(some, *limits)
        return encode_all(examples_of(some), *limits)

    kept = (tokenizer.backend_tokenizer.to_str(), tokenizer.special_tokens_map, tokenizer.chat_template)
    return mapped(rows, encode, ENCODED, *kept, settings.max_length, settings.labels)


def _first(rows: Dataset | IterableDataset, count: int) -> Iterable[Row]:
    return rows.take(count) if isinstance(rows, IterableDataset) else rows.select(range(min(count, len(rows))))


def note_unscored(settings: Settings) -> None:
    """One line where SQuAD's questions were to be answered and there are none."""
    if settings.generate_size or settings.generate_train_size:
        _note(f"{settings.dataset} is trained on without SQuAD's questions: no answers are scored")


def _note(text: str) -> None:
    if os.environ.get("RANK", "0") == "0":
        print(f"note: {text}", flush=True)
