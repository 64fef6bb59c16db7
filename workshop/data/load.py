"""The data of a run: the first examples of a data set, encoded for the Trainer."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from itertools import cycle, islice
from typing import Any

from datasets import Dataset, Features, List, Value, disable_progress_bars, enable_progress_bars
from datasets.fingerprint import Hasher
from filelock import FileLock
from transformers import DataCollator, PreTrainedTokenizerBase

from workshop.data.encoding import Encoded, PaddingCollator, encode_all, encode_prompts, teaches_to_stop
from workshop.data.forms import Row
from workshop.data.sources import cache_folder, code_of_package, load_splits, split_of
from workshop.private_names import fingerprint
from workshop.record.errors import InputError
from workshop.record.printable import counted
from workshop.settings.settings import Settings

ENCODED = Features(
    {"input_ids": List(Value("int32")), "attention_mask": List(Value("int8")), "labels": List(Value("int32"))}
)
SHOW_PROGRESS_ABOVE = 2_000  # rows; fewer take no time


@dataclass(frozen=True)
class Data:
    """Rows for the Trainer, their collator, and SQuAD's questions as text, for exact match and F1."""

    train: Sequence[Encoded]  # text's are a list, others' a Dataset on disk
    evaluation: Sequence[Encoded]
    examples: list[Row]  # held out, GENERATE_SIZE of them
    collator: DataCollator
    train_examples: list[Row] = field(default_factory=list)


def load_data(settings: Settings, tokenizer: PreTrainedTokenizerBase) -> Data:
    """Return the first TRAIN_SIZE training and EVAL_SIZE evaluation examples, without loss on prompt and padding.

    They are SQuAD questions, conversations, or plain text, which `load_text` cuts into rows. The first process of a
    node encodes them into the cache; the others wait for its lock, because a collective would time out.

    Raises InputError if MAX_LENGTH leaves an example, or a question that is to be answered, no room.
    """
    name, other = settings.dataset, settings.eval_dataset or settings.dataset
    with FileLock(cache_folder() / f"{Hasher.hash([name, other])}.lock"):
        splits = load_splits(name, settings.ignore_keys, settings.note)
        train = split_of(name, splits, "train")
        if "text" in train.column_names:
            if settings.eval_dataset:
                found = "of plain text the rows after TRAIN_SIZE are held out"
                raise InputError(f"EVAL_DATASET={other}: {found}; expected it left out")
            return load_text(settings, tokenizer, train)
        splits = load_splits(other, settings.ignore_keys, settings.note) if settings.eval_dataset else splits
        held_out = split_of(other, splits, "validation", "test", "train")
        if held_out.column_names != train.column_names:
            raise InputError(f"EVAL_DATASET={other}: found rows of another kind, expected that of DATASET={name}")
        train, evaluation = split_rows(settings, train, held_out)
        encoded = [_encoded(rows, settings, tokenizer) for rows in (train, evaluation)]
    pad_to = settings.max_length if settings.padding == "max_length" else None
    collator = PaddingCollator(tokenizer.pad_token_id, pad_to)
    if "messages" in train.column_names:
        _note_unscored(settings)
        if settings.labels == "answer" and not teaches_to_stop(train[0], tokenizer):
            settings.note("warning: the chat template has no token after an answer: the model does not learn to stop")
        return Data(*encoded, [], collator)
    asked, known = [*islice(evaluation, settings.generate_size)], [*islice(train, settings.generate_train_size)]
    if asked or known:  # a question that is too long is refused now, not after the training
        encode_prompts([*asked, *known], tokenizer, settings.max_length, settings.max_new_tokens)
    return Data(*encoded, asked, collator, known)


def load_text(settings: Settings, tokenizer: PreTrainedTokenizerBase, documents: Dataset | None = None) -> Data:
    """Return TRAIN_SIZE and EVAL_SIZE rows of MAX_LENGTH tokens, all targets: documents, or SQuAD's passages.

    They come from `documents`, or else from DATASET's split `train`. Older material draws random tokens (erratum B3):
    their loss cannot fall, so nobody notices a wrong one.
    """
    _note_unscored(settings)
    count, length = settings.train_size + settings.eval_size, settings.max_length
    if documents is None:
        splits = load_splits(settings.dataset, settings.ignore_keys, settings.note)
        documents = split_of(settings.dataset, splits, "train")
    if "messages" in documents.column_names:
        raise InputError(f"DATASET={settings.dataset}: found conversations, expected text or SQuAD's passages")
    text: list[int] = []
    for document in documents["text"] if "text" in documents.column_names else dict.fromkeys(documents["context"]):
        text += [*tokenizer(document, verbose=False)["input_ids"], tokenizer.eos_token_id]
        if len(text) >= count * length:
            break
    tokens = cycle(text)  # a short text is repeated
    rows = [list(islice(tokens, length)) for _ in range(count)]
    encoded = [{"input_ids": row, "attention_mask": [1] * length, "labels": row} for row in rows]
    collator = PaddingCollator(tokenizer.pad_token_id, length)
    return Data(encoded[: settings.train_size], encoded[settings.train_size :], [], collator)


def split_rows(settings: Settings, train: Dataset, held_out: Dataset) -> tuple[Dataset, Dataset]:
    """Return the first TRAIN_SIZE rows to train on and the first EVAL_SIZE of `held_out` to evaluate on.

    If both are the same file or slice, training takes its first rows and evaluation its last; if it has fewer rows than
    the two sizes, both take their share. Raises InputError if there are too few, or if a row is in both.
    """
    name, other = settings.dataset, settings.eval_dataset or settings.dataset
    train_size, eval_size = settings.train_size, settings.eval_size
    if held_out is train:
        if len(train) < 2:
            raise InputError(f"DATASET={name}: found {counted(len(train), 'example')}, expected 2 or more")
        if (both := train_size + eval_size) > len(train):
            train_size = min(max(1, round(len(train) * train_size / both)), len(train) - 1)
            eval_size = len(train) - train_size
            fewer = f"{len(train)} examples, fewer than TRAIN_SIZE + EVAL_SIZE = {both}"
            settings.note(f"note: {name} has {fewer}: {train_size} to train on, {eval_size} held out")
        return train.take(train_size), train.skip(len(train) - eval_size)
    for variable, size, rows, dataset in (("TRAIN", train_size, train, name), ("EVAL", eval_size, held_out, other)):
        if size > len(rows):
            found = f"{counted(len(rows), 'example')} in {dataset}"
            raise InputError(f"{variable}_SIZE={size}: found {found}, expected at most as many")
    train, evaluation = train.take(train_size), held_out.take(eval_size)
    if shared := {*train["id"]} & {*evaluation["id"]}:
        found = f"{len(shared)} of its examples among the training examples too (for instance id {min(shared)})"
        raise InputError(f"EVAL_DATASET={other}: found {found}, expected none")
    return train, evaluation


def _encoded(rows: Dataset, settings: Settings, tokenizer: PreTrainedTokenizerBase) -> Dataset:
    """Return the rows as encode_all has them, from the cache while rows, tokenizer, code and libraries are the same.

    One process encodes: a fast tokenizer uses a thread per processor.
    """

    def encode(columns: dict[str, list[Any]]) -> dict[str, list[Any]]:
        batch = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
        encoded = encode_all(batch, tokenizer, settings.max_length, settings.labels)
        return {name: [row[name] for row in encoded] for name in ENCODED}

    kept = (tokenizer.backend_tokenizer.to_str(), tokenizer.special_tokens_map, tokenizer.chat_template)
    libraries = [version(name) for name in ("datasets", "transformers", "tokenizers")]
    depends_on = [fingerprint(rows), *kept, settings.max_length, settings.labels, *libraries, code_of_package()]
    (disable_progress_bars if len(rows) <= SHOW_PROGRESS_ABOVE else enable_progress_bars)()
    options = {"batched": True, "features": ENCODED, "remove_columns": rows.column_names, "desc": "tokenising"}
    return rows.map(encode, new_fingerprint=Hasher.hash(depends_on), **options)


def _note_unscored(settings: Settings) -> None:
    if settings.generate_size or settings.generate_train_size:
        settings.note(f"note: {settings.dataset} is trained on without SQuAD's questions: no answers are scored")
