"""The rows of a data set, by `datasets.load_dataset`, each in the layout of its kind and with its place for errors.

DATASET is `sample`, `harbour` (workshop/sample/harbour.py), a hub name, or a file, a glob or a folder of .json (SQuAD's
own nesting), .jsonl, .csv, .parquet or .txt (a document each). A split or slice may follow in the library's own
syntax: `chats.jsonl:train[:10%]`, `rajpurkar/squad:train[100:200]+validation`; it counts questions, rows or documents.
Columns of questions and answers come before a column `text`. Nothing is guessed: csv is read as strings, and the lines
of a .jsonl file as text, for the library's readers make `NA` nothing, `007` seven and a date a timestamp of them.
"""

import csv
import glob
import json
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import datasets
from datasets import Dataset, Features, List, ReadInstruction, Value, concatenate_datasets, load_dataset
from datasets.data_files import DataFilesDict, EmptyDatasetError, get_data_patterns
from datasets.fingerprint import Hasher

from workshop.data import hub
from workshop.data.conversations import REQUESTS, Conversation, conversation
from workshop.data.names import SUFFIXES, is_path, name_and_slice, text_of
from workshop.data.squad import SAMPLE_FILES, Example, article_examples, document_examples, row_example
from workshop.errors import WorkshopError
from workshop.sample import harbour

TEXT = Value("string")
QUESTION = Features({"at": TEXT, "id": TEXT, "title": TEXT, "question": TEXT, "context": TEXT, "answers": List(TEXT)})
CHAT = Features({"id": TEXT, "turns": List({"role": TEXT, "text": TEXT})})
DOCUMENT = Features({"text": TEXT})
EXPECTED = "a .json (SQuAD v1.1), .jsonl, .csv, .parquet or .txt file"
SHOW_PROGRESS_ABOVE = 2_000  # rows; fewer are done before a bar could be read

Row = dict[str, Any]


def load_splits(dataset: str) -> dict[str, Dataset]:
    """The data set's splits; a file, and what a slice names, is one split `train`. Raises WorkshopError."""
    name, spec = name_and_slice(dataset)
    if name == "harbour":
        splits = {split: _harbour(split) for split in SAMPLE_FILES}
    elif name == "sample":
        splits = {split: _read(file) for split, file in SAMPLE_FILES.items()}
    elif is_path(name):
        splits = _local(name)
    else:
        splits = _snapshot(name, hub.dataset_folder(name))
    if spec:
        splits = {"train": _sliced(dataset, splits, spec)}
    for rows in splits.values():
        _check_unique(rows)
    return splits


def load_squad(dataset: str, split: str) -> list[Example]:
    """All questions of a split in its own order; of a file, which has no splits, all."""
    splits = load_splits(dataset)
    return examples_of(split_of(dataset, splits, split, *(["train"] if is_path(dataset) else [])))


def split_of(dataset: str, splits: dict[str, Dataset], *names: str) -> Dataset:
    """The first of these splits that there is."""
    if found := [splits[name] for name in names if name in splits]:
        return found[0]
    raise WorkshopError(f"DATASET={dataset}: found the splits {', '.join(splits)}; expected {' or '.join(names)}")


def examples_of(rows: Iterable[Row]) -> list[Example]:
    names = ("id", "title", "question", "context")
    return [Example(**{name: row[name] for name in names}, answers=tuple(row["answers"])) for row in rows]


def conversations_of(rows: Iterable[Row]) -> list[Conversation]:
    return [Conversation(row["id"], tuple((turn["role"], turn["text"]) for turn in row["turns"])) for row in rows]


def rows_of(columns: dict[str, list[Any]]) -> list[Row]:
    """A batch of `datasets.map` as rows."""
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def cached_map(rows: Dataset, function: Callable[..., Any], features: Features, *depends_on: Any) -> Dataset:
    """`rows.map` in batches, kept in the cache until the rows, `depends_on`, this package's code or a library changes.

    The library's own fingerprint does not see the code of imported functions. One process maps: a fast tokenizer
    works on a batch in as many threads as there are processors.
    """
    (datasets.disable_progress_bars if len(rows) <= SHOW_PROGRESS_ABOVE else datasets.enable_progress_bars)()
    return rows.map(
        function,
        batched=True,
        with_indices=True,
        remove_columns=rows.column_names,
        features=features,
        new_fingerprint=fingerprint(rows._fingerprint, *depends_on),
        desc="tokenising" if "input_ids" in features else "reading",
    )


def fingerprint(*depends_on: Any) -> str:
    """A hash of this and of the code that reads and encodes: this package's, the sample's and the libraries'."""
    files = [*Path(__file__).parent.glob("*.py"), Path(harbour.__file__)]
    libraries = [version(name) for name in ("datasets", "transformers", "tokenizers")]
    return Hasher.hash([*depends_on, libraries, *(path.read_text() for path in sorted(files))])


def cache_folder() -> Path:
    """HF_DATASETS_CACHE, or a folder of the user's own where an instructor's HF_HOME can only be read."""
    folder = Path(datasets.config.HF_DATASETS_CACHE)
    there = next(path for path in (folder, *folder.parents) if path.exists())
    if not os.access(there, os.W_OK):
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "shardlab" / "datasets"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _read(path: Path) -> Dataset:
    """All rows of one file. After the library has failed, one look into the file says why. Raises WorkshopError."""
    kind = path.suffix
    if kind not in SUFFIXES or not path.is_file():
        found = f"found '{kind}'" if path.is_file() else "no such file"
        raise WorkshopError(f"{path}: {found}, expected {EXPECTED}")
    options: Row = {".json": {"field": "data"}, ".txt": {"sample_by": "document"}}.get(kind, {})
    datasets.disable_progress_bars()
    try:
        if kind == ".csv":
            with path.open(encoding="utf-8", newline="") as file:
                options = {"features": Features(dict.fromkeys(next(csv.reader(file)), TEXT)), "keep_default_na": False}
        reader = "text" if kind in (".jsonl", ".txt") else kind[1:]
        rows = load_dataset(reader, data_files=str(path), split="train", cache_dir=str(cache_folder()), **options)
    except Exception as error:  # the library's own, pandas', Arrow's, csv's
        raise _explained(path, error) from error
    if kind == ".json":
        return _converted(
            rows, QUESTION, lambda index, row: map(_question, article_examples(f"{path}: data[{index}]", row)), path
        )
    if kind == ".jsonl":
        return _lines(path, rows)
    if kind == ".txt":
        text_of(str(path), rows[0], "text")
        return rows
    return _table(rows, lambda index: f"{path}: row {index + 1}", path)


def _lines(path: Path, rows: Dataset) -> Dataset:
    """The rows of a .jsonl file, whose place is their line; empty lines are left out."""

    def parsed(index: int, line: str) -> Row:
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            place, expected = f"{path}:{index + 1}: column {error.colno}", "expected a JSON object on each line"
            raise WorkshopError(f"{place}: {error.msg}; {expected}") from error
        if not isinstance(row, dict):
            found = f"found {line.strip()[:40]!r}"
            raise WorkshopError(f"{path}:{index + 1}: {found}, expected a JSON object on each line")
        return row

    first = next(((index, line) for index, line in enumerate(rows["text"]) if line.strip()), None)
    if first is None:
        raise WorkshopError(f"{path}: found no line, expected a JSON object on each")
    kind = _kind({*parsed(*first)})

    def convert(index: int, row: Row) -> list[Row]:
        line = row["text"]
        return [_in_kind(kind, f"{path}:{index + 1}", parsed(index, line))] if line.strip() else []

    return _converted(rows, kind, convert, path)


def _table(rows: Dataset, at: Callable[[int], str], source: object) -> Dataset:
    """The rows of a table, each in its kind's layout."""
    kind = _kind({*rows.column_names})
    return _converted(rows, kind, lambda index, row: [_in_kind(kind, at(index), row)], source)


def _converted(rows: Dataset, kind: Features, convert: Callable[[int, Row], Iterable[Row]], source: object) -> Dataset:
    """What `convert` makes of each row and its index; `source` is part of the rows' places."""

    def batch(columns: dict[str, list[Any]], indices: list[int]) -> dict[str, list[Any]]:
        found = [one for index, row in zip(indices, rows_of(columns), strict=True) for one in convert(index, row)]
        return {name: [one[name] for one in found] for name in kind}

    return cached_map(rows, batch, kind, str(source))


def _kind(columns: set[str]) -> Features:
    """Which kind of row has these columns."""
    if {"question", "context", "answers"} <= columns:
        return QUESTION
    if "text" in columns and not ({"messages", "conversations", "completion"} | {*REQUESTS}) & columns:
        return DOCUMENT
    return CHAT  # or an error, which names the columns


def _in_kind(kind: Features, at: str, row: Row) -> Row:
    if kind is QUESTION:
        return _question((at, row_example(at, row)))
    if kind is DOCUMENT:
        return {"text": text_of(at, row, "text")}
    return {"id": at, "turns": [{"role": role, "text": text} for role, text in conversation(at, row).turns]}


def _question(located: tuple[str, Example]) -> Row:
    return {"at": located[0], **asdict(located[1])}


def _harbour(split: str) -> Dataset:
    datasets.disable_progress_bars()
    places = {"features": QUESTION, "cache_dir": str(cache_folder()), "gen_kwargs": {"split": split}}
    return Dataset.from_generator(_harbour_rows, **places, fingerprint=fingerprint("harbour", split))


def _harbour_rows(split: str) -> Iterator[Row]:
    yield from map(_question, document_examples("harbour", harbour.document(split)))


def _local(name: str) -> dict[str, Dataset]:
    """A file, a glob, or a folder, whose files' names say which split they are."""
    path = Path(name).expanduser()
    if path.is_dir() and any(path.rglob("*.parquet")):
        return _snapshot(name, path)
    matches = [] if path.exists() else sorted(glob.glob(str(path), recursive=True))  # noqa: PTH207
    files = {"train": [*map(Path, matches)] or [path]}
    if path.is_dir():
        try:
            found = DataFilesDict.from_patterns(get_data_patterns(str(path)), base_path=str(path))
        except EmptyDatasetError:
            found = {}
        files = {str(split): [Path(file) for file in some if file.endswith(SUFFIXES)] for split, some in found.items()}
        if not any(files.values()):
            raise WorkshopError(f"{path}: found a folder without data, expected {EXPECTED} in it")
    return {split: _joined(name, [_read(file) for file in some]) for split, some in files.items() if some}


def _joined(name: str, parts: list[Dataset]) -> Dataset:
    if len({tuple(part.column_names) for part in parts}) > 1:
        raise WorkshopError(f"{name}: found files of different kinds, expected questions, conversations or text only")
    return concatenate_datasets(parts)


def _snapshot(name: str, folder: Path) -> dict[str, Dataset]:
    """The splits of a data set of the hub. Its folder is given, not its name, which offline would not be found."""
    parts = sorted({file.parent.relative_to(folder).as_posix() for file in folder.rglob("*.parquet")})
    if len(parts) != 1:
        found = f"{len(parts)} configurations ({', '.join(parts)})" if parts else "no *.parquet"
        raise WorkshopError(
            f"DATASET={name}: found {found}, expected one folder with train-*.parquet, as rajpurkar/squad has; "
            "DATASET=sample or the path of a SQuAD v1.1 JSON file works too"
        )
    datasets.disable_progress_bars()
    splits = load_dataset(str(folder), cache_dir=str(cache_folder()))
    return {
        str(split): _table(rows, lambda index, split=split: f"{name}: {split}[{index}]", (name, split))
        for split, rows in splits.items()
    }


def _sliced(dataset: str, splits: dict[str, Dataset], spec: str) -> Dataset:
    sizes = {split: len(rows) for split, rows in splits.items()}
    try:
        parts = ReadInstruction.from_spec(spec).to_absolute(sizes)
    except (ValueError, AssertionError) as error:
        found = ", ".join(f"{split} ({size})" for split, size in sizes.items())
        raise WorkshopError(
            f"DATASET={dataset}: {str(error).strip()}; found the splits {found}, expected one of them or "
            "a slice such as train[:10%]"
        ) from error
    return concatenate_datasets([splits[part.splitname].select(range(part.from_, part.to)) for part in parts])


def _check_unique(rows: Dataset) -> None:
    """Predictions are looked up by id, so an id that occurs twice would score one answer for two questions."""
    places: dict[str, str] = {}
    for question, place in zip(rows["id"], rows["at"], strict=True) if "at" in rows.column_names else ():
        if question in places:
            raise WorkshopError(f"{place}.id: found {question} again (first: {places[question]}), expected unique ids")
        places[question] = place


def _explained(path: Path, error: Exception) -> WorkshopError:
    """Why the library could not read a file, with the place of the first mistake."""
    try:
        text = path.read_text(encoding="utf-8") if path.suffix != ".parquet" else "-"
        if not text.strip():
            return WorkshopError(f"{path}: found an empty file, expected rows or text")
        if path.suffix == ".json":
            list(document_examples(str(path), json.loads(text)))
    except json.JSONDecodeError as wrong:
        place = f"line {wrong.lineno}, column {wrong.colno}"
        return WorkshopError(f"{path}: {place}: {wrong.msg}; expected a SQuAD v1.1 JSON file")
    except UnicodeDecodeError as wrong:
        return WorkshopError(f"{path}: byte {wrong.start} is not UTF-8, expected text")
    except OSError as wrong:
        return WorkshopError(f"{path}: {wrong.strerror}, expected a file that can be read")
    except WorkshopError as wrong:
        return wrong
    while error.__cause__ is not None:
        error = error.__cause__
    return WorkshopError(f"{path}: {str(error).strip() or type(error).__name__}; expected {EXPECTED}")
