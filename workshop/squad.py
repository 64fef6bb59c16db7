"""Reading SQuAD v1.1: the shipped samples, a JSON file, or a data set of the Hugging Face hub.

Format: Rajpurkar et al. 2016, arXiv:1606.05250; `data[].paragraphs[].context` and `.qas[]` with `id`, `question` and
`answers[].text`, every answer a span of its context. Needs no torch, and the hub's library only for the hub.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evidence.counted import counted
from workshop.errors import WorkshopError
from workshop.sample import harbour

SAMPLE_DIR = Path(__file__).parent / "sample"
SAMPLE_FILES = {"train": SAMPLE_DIR / "train-v1.1.json", "validation": SAMPLE_DIR / "dev-v1.1.json"}


@dataclass(frozen=True)
class Example:
    """One question about one passage; `answers` are the reference answers, never empty, the training target first."""

    id: str
    title: str
    question: str
    context: str
    answers: tuple[str, ...]


def load_squad(dataset: str, split: str) -> list[Example]:
    """All examples of a data set, in its own order.

    `dataset` is `sample`, `harbour` (workshop/sample/harbour.py), a path to a SQuAD v1.1 JSON file, or a hub name such
    as `rajpurkar/squad`. `split` is `train` or `validation`; a JSON file has no splits and is read whole. Raises
    WorkshopError naming the file and the place.
    """
    if dataset == "sample":
        return _read_file(SAMPLE_FILES[split])
    if dataset == "harbour":
        return _without_duplicates(_file_examples(Path("harbour"), harbour.document(split)))
    if is_path(dataset):
        return _read_file(Path(dataset).expanduser())
    return _read_hub(dataset, split)


def split_examples(
    dataset: str, train_size: int, eval_size: int, eval_dataset: str = "", load: Callable[[str, str], list] = load_squad
) -> tuple[list[Any], list[Any]]:
    """`train_size` examples to train on and `eval_size` others to evaluate on.

    Both are the first ones of their split. A single JSON file has no splits: training takes its first examples,
    evaluation its last, unless `eval_dataset` names a data set of its own. Raises WorkshopError if there are too few,
    or if an example is in both.
    """
    if train_size < 1:
        raise WorkshopError(f"TRAIN_SIZE={train_size}: expected at least 1 example to train on")
    if eval_size < 0:
        raise WorkshopError(f"EVAL_SIZE={eval_size}: expected 0 or more examples")

    train = load(dataset, "train")
    _check_size("TRAIN_SIZE", train_size, len(train), dataset)
    if is_path(dataset) and not eval_dataset:
        _check_size("EVAL_SIZE", eval_size, len(train), dataset)
        if train_size + eval_size > len(train):
            raise WorkshopError(
                f"TRAIN_SIZE={train_size} and EVAL_SIZE={eval_size} overlap: {dataset} has {len(train)} examples; "
                "expected smaller sizes, or EVAL_DATASET naming another file"
            )
        return train[:train_size], train[len(train) - eval_size :]

    evaluation = load(eval_dataset or dataset, "validation")
    _check_size("EVAL_SIZE", eval_size, len(evaluation), eval_dataset or dataset)
    train, evaluation = train[:train_size], evaluation[:eval_size]
    shared = {example.id for example in train} & {example.id for example in evaluation}
    if shared:
        raise WorkshopError(
            f"EVAL_DATASET={eval_dataset or dataset}: found {len(shared)} of its examples among the training "
            f"examples too (for instance id {min(shared)}), expected none"
        )
    return train, evaluation


def is_path(dataset: str) -> bool:
    """Whether the name means a file. `rajpurkar/squad` does not, unless something of that name exists here."""
    if dataset.endswith((".json", ".jsonl", ".txt")) or dataset.startswith(("/", "./", "../", "~")):
        return True
    return "/" in dataset and Path(dataset).exists()


def _check_size(variable: str, asked: int, available: int, dataset: str) -> None:
    if asked > available:
        found = f"{counted(available, 'example')} in {dataset}"
        raise WorkshopError(f"{variable}={asked}: found {found}, expected at most as many")


def _read_file(path: Path) -> list[Example]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise WorkshopError(f"{path}: no such file, expected a SQuAD v1.1 JSON file") from None
    except json.JSONDecodeError as error:
        raise WorkshopError(
            f"{path}: line {error.lineno}, column {error.colno}: {error.msg}; expected a SQuAD v1.1 JSON file"
        ) from error
    except UnicodeDecodeError as error:
        raise WorkshopError(f"{path}: byte {error.start} is not UTF-8, expected a SQuAD v1.1 JSON file") from error
    except OSError as error:
        raise WorkshopError(f"{path}: {error.strerror}, expected a readable SQuAD v1.1 JSON file") from error
    return _without_duplicates(_file_examples(path, document))


def _file_examples(path: Path, document: Any) -> Iterator[tuple[str, Example]]:
    """Each example with its position, for instance `FILE: data[3].paragraphs[0].qas[2]`."""
    for article_at, article in _items(f"{path}: ", document, "data"):
        title = _text(article_at, article, "title")
        for paragraph_at, paragraph in _items(f"{article_at}.", article, "paragraphs"):
            context = _text(paragraph_at, paragraph, "context")
            for question_at, question in _items(f"{paragraph_at}.", paragraph, "qas"):
                yield (
                    question_at,
                    Example(
                        id=_text(question_at, question, "id"),
                        title=title,
                        question=_text(question_at, question, "question"),
                        context=context,
                        answers=_answers(question_at, question),
                    ),
                )


def _answers(question_at: str, question: dict[str, Any]) -> tuple[str, ...]:
    """The reference answers. SQuAD v2.0 marks an unanswerable question by an empty list, which v1.1 does not have."""
    answers = tuple(_text(at, answer, "text") for at, answer in _items(f"{question_at}.", question, "answers"))
    if not answers:
        raise _unexpected(f"{question_at}.answers", "an empty list", "at least one answer (SQuAD v1.1, not v2.0)")
    return answers


def _items(prefix: str, parent: Any, key: str) -> Iterator[tuple[str, Any]]:
    """The elements of the list `parent[key]`, each with its position; the errors name `prefix` + key."""
    if not isinstance(parent, dict):
        raise _unexpected(prefix.rstrip(".: "), _kind(parent), f'an object with "{key}"')
    items = parent.get(key)
    if not isinstance(items, list):
        raise _unexpected(f"{prefix}{key}", _kind(items), "a list")
    for index, item in enumerate(items):
        yield f"{prefix}{key}[{index}]", item


def _text(at: str, parent: Any, key: str) -> str:
    """The text `parent[key]`, which must not be blank."""
    if not isinstance(parent, dict):
        raise _unexpected(at, _kind(parent), f'an object with "{key}"')
    value = parent.get(key)
    if not isinstance(value, str):
        raise _unexpected(f"{at}.{key}", _kind(value), "a text")
    if not value.strip():
        raise _unexpected(f"{at}.{key}", "an empty text", "a text")
    return value


def _kind(value: Any) -> str:
    """JSON's word for a value, for error messages; an absent key reads the same as null."""
    if value is None:
        return "nothing"
    names = {
        bool: "true or false",
        int: "a number",
        float: "a number",
        str: "a text",
        list: "a list",
        dict: "an object",
    }
    return names[type(value)]


def _unexpected(position: str, found: str, expected: str) -> WorkshopError:
    return WorkshopError(f"{position}: found {found}, expected {expected}")


def _without_duplicates(located: Iterable[tuple[str, Example]]) -> list[Example]:
    """Predictions are looked up by id, so an id that occurs twice would score one answer for two questions."""
    places: dict[str, str] = {}
    examples = []
    for place, example in located:
        if example.id in places:
            raise WorkshopError(
                f"{place}.id: found {example.id} again (first: {places[example.id]}), expected unique ids"
            )
        places[example.id] = place
        examples.append(example)
    return examples


def _read_hub(name: str, split: str) -> list[Example]:
    return _without_duplicates(_hub_examples(name, split, hub_rows(name, split)))


def hub_rows(name: str, split: str) -> Iterator[dict[str, Any]]:
    """The rows of `SPLIT-00000-of-00001.parquet` and its like, as the hub keeps every data set in tables.

    Read from the hub's cache itself: `datasets` would write a second copy and a lock beside it, which fails in a cache
    that an instructor has filled for all.
    """
    import pyarrow.parquet as pq

    return (row for file in _hub_files(name, split) for row in pq.read_table(file).to_pylist())


def hub_columns(name: str) -> set[str]:
    """The names of a hub's table's columns."""
    import pyarrow.parquet as pq

    return {*pq.read_schema(_hub_files(name, "train")[0]).names}


def _hub_files(name: str, split: str) -> list[Path]:
    from workshop.hub import dataset_folder

    folder = dataset_folder(name)
    files = sorted(folder.rglob(f"{split}-*.parquet"))
    parts = sorted({file.parent.relative_to(folder).as_posix() for file in files})
    if len(parts) != 1:
        found = f"{len(parts)} configurations ({', '.join(parts)})" if parts else f"no {split}-*.parquet"
        raise WorkshopError(
            f"DATASET={name}: found {found}, expected one folder with {split}-*.parquet, as rajpurkar/squad has; "
            "DATASET=sample or the path of a SQuAD v1.1 JSON file works too"
        )
    return files


def _hub_examples(name: str, split: str, rows: Iterable[dict[str, Any]]) -> Iterator[tuple[str, Example]]:
    """The hub's tables hold one question per row, with `answers` as {"text": [...], "answer_start": [...]}."""
    for index, row in enumerate(rows):
        at = f"{name}: {split}[{index}]"
        texts = [{"text": text} for _, text in _items(f"{at}.answers.", row.get("answers"), "text")]
        fields = {key: _text(at, row, key) for key in ("id", "title", "question", "context")}
        yield at, Example(**fields, answers=_answers(at, {"answers": texts}))
