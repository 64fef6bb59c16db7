"""Read the rows of a data set with `datasets.load_dataset`, in the columns of their kind.

DATASET is `sample`, `harbour` or `harbour-sentences` (workshop/sample/harbour.py), a hub name, or a file, a glob or a
folder of .json (SQuAD's own nesting, or a list of rows), .jsonl, .csv, .parquet or .txt (a document each). A split or
slice may follow in the library's own syntax: `chats.jsonl:train[:10%]`, `rajpurkar/squad:train[100:200]+validation`; it
counts questions, rows or documents.
Columns of questions and answers take precedence over a column `text`. csv is read as strings, and rows of .json and
.jsonl as text: the library's readers turn `NA` into nothing, `007` into seven and a date into a timestamp.
"""

import glob
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import datasets
import pandas
from datasets import Dataset, Features, Value, concatenate_datasets, load_dataset
from datasets.data_files import DataFilesDict, EmptyDatasetError, get_data_patterns
from datasets.fingerprint import Hasher

from workshop.data import forms
from workshop.data.forms import Row
from workshop.data.hub import Repository, hub_error
from workshop.run_folder.errors import InputError
from workshop.sample import harbour

TEXT = Value("string")
QUESTION = Features(dict.fromkeys(("id", "title", "question", "context"), TEXT) | {"answers": datasets.List(TEXT)})
CHAT = Features({"id": TEXT, "messages": datasets.List({"role": TEXT, "content": TEXT})})
DOCUMENT = Features({"text": TEXT})
EXPECTED = "a .json (SQuAD v1.1 or a list of rows), .jsonl (a row per line), .csv, .parquet or .txt file"
BOM = "\ufeff"  # byte order mark at a file's beginning
SHOW_PROGRESS_ABOVE = 2_000  # rows; fewer take no time

Located = tuple[str, Row]  # a row and its place


def load_splits(dataset: str) -> dict[str, Dataset]:
    """Return the data set's splits; a file or a slice is one split `train`. Raises InputError."""
    name, spec = forms.name_and_slice(dataset)
    datasets.disable_progress_bars()
    if name in ("harbour", "harbour-sentences"):
        splits = {split: _harbour(name, split) for split in forms.SAMPLE_FILES}
    elif name == "sample":
        splits = {split: _read(file) for split, file in forms.SAMPLE_FILES.items()}
    else:
        splits = (_local if forms.is_path(name) else _tables)(name)
    if spec:
        splits = {"train": _sliced(dataset, splits, spec)}
    for rows in splits.values():
        # Predictions are found by id: an id that occurs twice would score one answer for two questions.
        for question, times in Counter(rows["id"] if "question" in rows.column_names else ()).most_common(1):
            if times > 1:
                raise InputError(f"{name}: id: found {question} {times} times, expected unique ids")
    return splits


def split_of(dataset: str, splits: dict[str, Dataset], *names: str) -> Dataset:
    """Return the first of these splits that exists."""
    if found := [splits[name] for name in names if name in splits]:
        return found[0]
    raise InputError(f"DATASET={dataset}: found the splits {', '.join(splits)}; expected {' or '.join(names)}")


def examples_of(rows: Iterable[Row]) -> list[forms.Example]:
    return [forms.Example(**row | {"answers": tuple(row["answers"])}) for row in rows]


def mapped(
    rows: Dataset, function: Callable[[list[int], list[Row]], list[Row]], features: Features, *depends_on: Any
) -> Dataset:
    """Return `rows.map` of `function`, which is given the indices and rows of a batch, with the columns of `features`.

    The result stays in the cache until the rows, `depends_on`, the code of this package or a library changes; the
    library's own fingerprint does not cover imported functions. One process maps: a fast tokenizer uses a thread per
    processor.
    """

    def batch(columns: dict[str, list[Any]], indices: list[int]) -> dict[str, list[Any]]:
        some = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
        found = function(indices, some)
        return {name: [row[name] for row in found] for name in features}

    options = {"batched": True, "with_indices": True, "features": features, "remove_columns": rows.column_names}
    files = [*Path(__file__).parent.glob("*.py"), Path(harbour.__file__)]
    code = [path.read_text() for path in sorted(files)]
    libraries = [version(name) for name in ("datasets", "transformers", "tokenizers")]
    (datasets.disable_progress_bars if len(rows) <= SHOW_PROGRESS_ABOVE else datasets.enable_progress_bars)()
    fingerprint = Hasher.hash([rows._fingerprint, *depends_on, libraries, *code])
    desc = "tokenising" if "input_ids" in features else "reading"
    return rows.map(batch, **options, new_fingerprint=fingerprint, desc=desc)


def cache_folder() -> Path:
    """Return HF_DATASETS_CACHE, or a folder of the user where an instructor's HF_HOME is read-only."""
    folder = Path(datasets.config.HF_DATASETS_CACHE)
    there = next(path for path in (folder, *folder.parents) if path.exists())
    if not os.access(there, os.W_OK):
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "shardlab" / "datasets"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _harbour(name: str, split: str) -> Dataset:
    articles = Dataset.from_list(harbour.document(split, sentences=name == "harbour-sentences")["data"])
    return _converted(articles, lambda _, article: forms.article_rows(name, article), name)


def _local(name: str) -> dict[str, Dataset]:
    """Read a file, a glob, or a folder whose files' names tell their split."""
    path = Path(name).expanduser()
    files = {"train": sorted(glob.glob(str(path), recursive=True)) or [str(path)]}  # noqa: PTH207
    if path.is_dir():
        with suppress(EmptyDatasetError):
            files = DataFilesDict.from_patterns(get_data_patterns(str(path)), base_path=str(path))
        files = {str(split): [file for file in some if file.endswith(forms.SUFFIXES)] for split, some in files.items()}
    splits = {split: [_read(Path(file)) for file in some] for split, some in files.items() if some}
    if not splits:
        raise InputError(f"{path}: found a folder without data, expected {EXPECTED} in it")
    if any(part.column_names != parts[0].column_names for parts in splits.values() for part in parts):
        raise InputError(f"{name}: found files of different kinds, expected questions, conversations or text only")
    return {split: concatenate_datasets(parts) for split, parts in splits.items()}


def _tables(name: str) -> dict[str, Dataset]:
    """Read a data set of the hub from its folder, because offline its name would not be found."""
    repository, folder = Repository("dataset", name), None
    with suppress(InputError):  # it is not in the cache, which need not be writable
        folder = Path(repository.snapshot(local_files_only=True))
    if not folder or not any(folder.rglob("*.parquet")):  # an interrupted download may have left its README
        folder = Path(repository.snapshot())
    parts = {file.parent.name for file in folder.rglob("*.parquet")}
    if len(parts) != 1:
        found = f"{len(parts)} configurations ({', '.join(sorted(parts))})" if parts else "no *.parquet"
        raise InputError(f"DATASET={name}: found {found}, expected one with train-*.parquet, as rajpurkar/squad has")
    try:
        splits = load_dataset(str(folder), cache_dir=str(cache_folder()))
    except (OSError, ValueError) as error:
        raise hub_error(f"DATASET={name}", name, error, "dataset") from error
    return {
        str(split): _converted(rows, lambda index, row, at=f"{name}: {split}": [(f"{at}[{index}]", row)], (name, split))
        for split, rows in splits.items()
    }


def _read(path: Path) -> Dataset:
    """Read all rows of a file. Raises InputError, with the reason where the library fails."""
    kind = path.suffix
    if kind not in forms.SUFFIXES or not path.is_file():
        found = f"found '{kind}'" if path.is_file() else "no such file"
        raise InputError(f"{path}: {found}, expected {EXPECTED}")
    options: Row = {"sample_by": "document"} if kind == ".txt" else {}
    reader = "text" if kind in (".jsonl", ".txt") else kind[1:]
    try:
        if kind == ".csv":
            columns = pandas.read_csv(path, nrows=0).columns
            options = {"features": Features(dict.fromkeys(columns, TEXT)), "keep_default_na": False}
        if kind == ".json":
            of = {"path": path, "written_ns": path.stat().st_mtime_ns}
            rows = Dataset.from_generator(_elements, gen_kwargs=of, cache_dir=str(cache_folder()))
        else:
            places = {"data_files": str(path), "cache_dir": str(cache_folder())}
            rows = load_dataset(reader, split="train", **places, **options)
    except Exception as error:  # the library's own, pandas', Arrow's
        raise _explained(path, error) from error
    return _converted(rows, partial(_rows_of, path), path)


def _elements(path: Path, written_ns: int) -> Iterator[Row]:
    """Give place and JSON of each article of a SQuAD file or each row of a list. Args: written_ns: for the cache."""
    document = json.loads(path.read_text(encoding="utf-8-sig"))
    is_list = isinstance(document, list) and all(isinstance(row, dict) for row in document)
    if isinstance(document, dict) and forms.layout_of(document):
        raise InputError(f"{path}: found one row, expected a list of rows, or .jsonl with a row on each line")
    document, key = ({"rows": document}, "rows") if is_list else (document, "data")
    yield from ({"at": at, "text": json.dumps(row)} for at, row in forms.items_of(f"{path}: ", document, key))


def _explained(path: Path, error: Exception) -> InputError:
    """Return why the library could not read a file, with the place of the first mistake."""
    try:
        if path.suffix != ".parquet" and not path.read_text(encoding="utf-8").strip():
            return InputError(f"{path}: found an empty file, expected rows or text")
    except (OSError, ValueError) as wrong:  # it names the byte that is not UTF-8
        error = wrong
    while error.__cause__ is not None:
        error = error.__cause__
    if isinstance(error, InputError):
        return error
    return InputError(f"{path}: {str(error).strip() or type(error).__name__}; expected {EXPECTED}")


def _rows_of(path: Path, index: int, raw: Row) -> Iterable[Located]:
    """Return the rows in one of the library's rows: several of a .json file's article, none of an empty line."""
    if path.suffix == ".json":
        at, row = raw["at"], json.loads(raw["text"])
        is_row = at.startswith(f"{path}: rows[") or (isinstance(row, dict) and forms.layout_of(row))
        return [(at, row)] if is_row else forms.article_rows(at, row)
    if path.suffix != ".jsonl":
        return [(str(path) if path.suffix == ".txt" else f"{path}: row {index + 1}", raw)]
    at, line, expected = (
        f"{path}:{index + 1}",
        raw["text"].strip().removeprefix(BOM),
        "expected a JSON object on each line",
    )
    try:
        row = json.loads(line or "{}")
    except json.JSONDecodeError as error:
        raise InputError(f"{at}: column {error.colno}: {error.msg}; {expected}") from error
    if not isinstance(row, dict):
        raise InputError(f"{at}: found {line[:40]!r}, {expected}")
    return [(at, row)] if line else []


def _converted(rows: Dataset, unpack: Callable[[int, Row], Iterable[Located]], source: object) -> Dataset:
    """Return the rows that `unpack` makes of each index and row, in the columns of the first one's kind."""
    first = next((row for index, raw in enumerate(rows) for _, row in unpack(index, raw)), None)
    if first is None:
        raise InputError(f"{source}: found no row, expected questions, conversations or text")
    kind, convert = CHAT, forms.conversation_of  # or an error, which names the columns
    if {"question", "context", "answers"} <= first.keys():
        kind, convert = QUESTION, forms.question_of
    elif "text" in first and not forms.layout_of(first):
        kind, convert = DOCUMENT, lambda at, row: {"text": forms.text_of(at, row, "text")}

    def function(indices: list[int], some: list[Row]) -> list[Row]:
        return [convert(*one) for index, raw in zip(indices, some, strict=True) for one in unpack(index, raw)]

    return mapped(rows, function, kind, str(source))


def _sliced(dataset: str, splits: dict[str, Dataset], spec: str) -> Dataset:
    sizes = {split: len(rows) for split, rows in splits.items()}
    try:
        parts = datasets.ReadInstruction.from_spec(spec).to_absolute(sizes)
    except (ValueError, AssertionError) as error:
        found = f"{str(error).strip()}; found the splits {', '.join(f'{name} ({sizes[name]})' for name in sizes)}"
        raise InputError(f"DATASET={dataset}: {found}, expected one of them or a slice as train[:10%]") from error
    return concatenate_datasets([splits[part.splitname].select(range(part.from_, part.to)) for part in parts])
