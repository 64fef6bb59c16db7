"""Read the rows of a data set, in the columns of their kind.

DATASET is `sample`, `harbour` or `harbour-sentences` (workshop/sample/harbour.py), a hub name, or a file, a glob or a
folder of .json (SQuAD's own nesting, or a list of rows), .jsonl, .csv, .parquet or .txt (a document each). A split or
slice may follow in the syntax of `datasets`: `chats.jsonl:train[:10%]`, `rajpurkar/squad:train[100:200]+validation`; it
counts questions, rows or documents.

Columns of questions and answers take precedence over a column `text`. Files are read without `datasets`, whose readers
guess types: they turn `NA` into nothing, `007` into seven and a date into a timestamp.
"""

import csv
import glob
import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import datasets
from datasets import Dataset, concatenate_datasets
from datasets.data_files import DataFilesDict, EmptyDatasetError, get_data_patterns
from datasets.exceptions import DatasetGenerationError
from pyarrow.parquet import ParquetFile

from workshop.data import forms
from workshop.data.forms import Row
from workshop.record.errors import InputError

SHOW_PROGRESS_ABOVE = 50 << 20  # bytes; smaller files take seconds
EXPECTED = "a .json (SQuAD v1.1 or a list of rows), .jsonl (a row per line), .csv, .parquet or .txt file, in UTF-8"

Located = tuple[str, Row]  # a row and its place


def load_splits(dataset: str, ignore_keys: str = "", say: Callable[[str], None] = print) -> dict[str, Dataset]:
    """Return the data set's splits; a file or a slice is one split `train`. `say` what to know of it.

    Raises InputError.
    """
    ignored = tuple(sorted(filter(None, map(str.strip, ignore_keys.split(",")))))
    name, spec = forms.name_and_slice(dataset)
    datasets.disable_progress_bars()
    if name in ("harbour", "harbour-sentences"):
        splits = {split: _kept((), _harbour_rows, name, split) for split in forms.SAMPLE_FILES}
    elif name == "sample":
        splits = {split: _rows_of_file(file, ()) for split, file in forms.SAMPLE_FILES.items()}
    else:
        splits = (_local if forms.is_path(name) else _of_hub)(name, ignored)
    if spec:
        splits = {"train": _sliced(dataset, splits, spec)}
    for rows in splits.values():
        # Predictions are found by id: an id that occurs twice would score one answer for two questions.
        for question, times in Counter(rows["id"] if "question" in rows.column_names else ()).most_common(1):
            if times > 1:
                raise InputError(f"{name}: id: found {question} {times} times, expected unique ids")
    if text := _noted(name, splits):
        say(text)
    return splits


def _noted(name: str, splits: dict[str, Dataset]) -> str:
    """Return what the rows' notes say, also if the rows come from the cache; "" without any."""
    rows = [part for part in splits.values() if "note" in part.column_names]
    notes = [text for part in rows for text in part["note"] if text]
    if not notes:
        return ""
    if "question" in rows[0].column_names:
        return f"warning: {name}: answers that are not in their contexts: {len(notes)}, the first in {notes[0]}"
    keys = ", ".join(sorted({key for text in notes for key in text.split(", ")}))
    return f"note: {name}: {keys}: found in turns of an assistant; nothing here reads them"


def split_of(dataset: str, splits: dict[str, Dataset], *names: str) -> Dataset:
    """Return the first of these splits that exists."""
    if present := [splits[name] for name in names if name in splits]:
        return present[0]
    raise InputError(f"DATASET={dataset}: found the splits {', '.join(splits)}; expected {' or '.join(names)}")


def code_of_package() -> str:
    """Return the code that reads and encodes, for a cache to depend on: fingerprints cover no imported functions."""
    files = [*Path(__file__).parent.glob("*.py"), forms.SAMPLE_DIR / "harbour.py"]
    return "".join(path.read_text() for path in sorted(files))


def cache_folder() -> Path:
    """Return HF_DATASETS_CACHE, or a folder of the user where an instructor's HF_HOME is read-only."""
    folder = Path(datasets.config.HF_DATASETS_CACHE)
    there = next(path for path in (folder, *folder.parents) if path.exists())
    if not os.access(there, os.W_OK):
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "shardlab" / "datasets"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _local(name: str, ignored: tuple[str, ...]) -> dict[str, Dataset]:
    """Read a file, a glob, or a folder whose files' names tell their split."""
    path = Path(name).expanduser()
    files = {"train": sorted(glob.glob(str(path), recursive=True)) or [str(path)]}  # noqa: PTH207
    if path.is_dir():
        with suppress(EmptyDatasetError):
            files = DataFilesDict.from_patterns(get_data_patterns(str(path)), base_path=str(path))
        files = {str(split): [file for file in some if file.endswith(forms.SUFFIXES)] for split, some in files.items()}
    splits = {split: [_rows_of_file(Path(file), ignored) for file in some] for split, some in files.items() if some}
    if not splits:
        raise InputError(f"{path}: found a folder without data, expected {EXPECTED} in it")
    if any(part.column_names != parts[0].column_names for parts in splits.values() for part in parts):
        raise InputError(f"{name}: found files of different kinds, expected questions, conversations or text only")
    return {split: concatenate_datasets(parts) for split, parts in splits.items()}


def _of_hub(name: str, ignored: tuple[str, ...]) -> dict[str, Dataset]:
    """Read a data set of the hub from its folder, because offline its name would not be found."""
    from workshop.data.hub import Repository

    repository = Repository("dataset", name)
    folder = repository.cached() or Path(repository.snapshot())
    parts = {file.parent for file in folder.rglob("*.parquet")}
    if len(parts) != 1:
        names = ", ".join(sorted(part.name for part in parts))
        found = f"{len(parts)} configurations ({names})" if parts else "no *.parquet"
        raise InputError(f"DATASET={name}: found {found}, expected one with train-*.parquet, as rajpurkar/squad has")
    return _local(str(parts.pop()), ignored)


def _rows_of_file(path: Path, ignored: tuple[str, ...]) -> Dataset:
    """Return all rows of a file; they are read again when it has changed."""
    if path.suffix not in forms.SUFFIXES or not path.is_file():
        found = f"found '{path.suffix}'" if path.is_file() else "no such file"
        raise InputError(f"{path}: {found}, expected {EXPECTED}")
    if path.stat().st_size > SHOW_PROGRESS_ABOVE:
        datasets.enable_progress_bars()
    return _kept(ignored, _file_rows, path, path.stat().st_mtime_ns)


def _kept(ignored: tuple[str, ...], read: Callable[..., Iterator[Located]], *of: object) -> Dataset:
    """Return the rows that `read(*of)` gives, in the columns of the first row's kind, from the cache if they are there.

    Raises InputError for a row that cannot be read. Args: ignored: of IGNORE_KEYS.
    """
    arguments = {"read": read, "of": of, "ignored": ignored, "code": code_of_package()}
    try:
        return Dataset.from_generator(_converted, gen_kwargs=arguments, cache_dir=str(cache_folder()))
    except DatasetGenerationError as error:
        raise error.__cause__ from None


def _converted(
    read: Callable[..., Iterator[Located]], of: tuple[object, ...], ignored: tuple[str, ...], code: str
) -> Iterator[Row]:
    convert, keys = None, forms.Keys(ignored)
    for at, row in read(*of):
        if convert is None:
            convert = forms.conversation_of  # or an error, which names the columns
            if {"question", "context", "answers"} <= row.keys():
                convert = forms.question_of
            elif "text" in row and not forms.layout_of(row):
                convert = forms.document_of
        try:
            row = convert(at, row, keys)
        except InputError:
            keys.check()  # a call of a tool, for example, has no content
            raise
        yield row
    keys.check()
    if convert is None:
        raise InputError(f"{of[0]}: found no row, expected questions, conversations or text")


def _harbour_rows(name: str, split: str) -> Iterator[Located]:
    from workshop.sample import harbour  # for this data set only

    yield from ((row["id"], row) for row in harbour.rows(split, sentences=name == "harbour-sentences"))


def _file_rows(path: Path, written_ns: int) -> Iterator[Located]:
    """Give a file's rows, each with its place. Args: written_ns: for the cache."""
    rows_of = {".json": _json, ".jsonl": _jsonl, ".csv": _csv, ".parquet": _parquet, ".txt": _txt}
    try:
        yield from rows_of[path.suffix](path)
    except (OSError, ValueError, csv.Error) as error:
        raise InputError(f"{path}: {error}; expected {EXPECTED}") from error


def _json(path: Path) -> Iterator[Located]:
    document = json.loads(path.read_text(encoding="utf-8-sig"))
    if isinstance(document, dict) and forms.layout_of(document):
        raise InputError(f"{path}: found one row, expected a list of rows, or .jsonl with a row on each line")
    is_list = isinstance(document, list)
    document, key = ({"rows": document}, "rows") if is_list else (document, "data")
    for at, row in forms.items_of(f"{path}: ", document, key):
        if is_list and not isinstance(row, dict):
            raise InputError(f"{at}: found {repr(row)[:40]}, expected a row {{…}}")
        is_row = is_list or (isinstance(row, dict) and forms.layout_of(row))
        yield from [(at, row)] if is_row else forms.article_rows(at, row)


def _jsonl(path: Path) -> Iterator[Located]:
    with path.open(encoding="utf-8-sig", newline="\n") as lines:
        for number, line in enumerate(lines, 1):
            at, expected = f"{path}:{number}", "expected a JSON object on each line"
            try:
                row = json.loads(line) if line.strip() else None
            except json.JSONDecodeError as error:
                raise InputError(f"{at}: column {error.colno}: {error.msg}; {expected}") from error
            if isinstance(row, dict):
                yield at, row
            elif line.strip():
                raise InputError(f"{at}: found {line.strip()[:40]!r}, {expected}")


def _csv(path: Path) -> Iterator[Located]:
    csv.field_size_limit(sys.maxsize)
    with path.open(encoding="utf-8-sig", newline="") as lines:
        rows = csv.DictReader(lines, restval="", strict=True)
        if twice := [name for name, times in Counter(rows.fieldnames).items() if name and times > 1]:
            raise InputError(f"{path}: found the column {twice[0]} twice, where the last would win; expected it once")
        for number, row in enumerate(rows, 1):
            if None in row:
                raise InputError(f"{path}: row {number}: found more cells than columns, expected as many")
            yield f"{path}: row {number}", row


def _parquet(path: Path) -> Iterator[Located]:
    rows = (row for batch in ParquetFile(path).iter_batches() for row in batch.to_pylist())
    yield from ((f"{path}: row {number}", row) for number, row in enumerate(rows, 1))


def _txt(path: Path) -> Iterator[Located]:
    yield str(path), {"text": path.read_text(encoding="utf-8-sig")}


def _sliced(dataset: str, splits: dict[str, Dataset], spec: str) -> Dataset:
    sizes = {split: len(rows) for split, rows in splits.items()}
    try:
        parts = datasets.ReadInstruction.from_spec(spec).to_absolute(sizes)
        if any(part.from_ >= part.to for part in parts):
            raise ValueError("The slice has no rows.")
    except (ValueError, AssertionError) as error:
        found = f"{str(error).strip()}; found the splits {', '.join(f'{name} ({sizes[name]})' for name in sizes)}"
        raise InputError(f"DATASET={dataset}: {found}, expected one of them or a slice as train[:10%]") from error
    return concatenate_datasets([splits[part.splitname].select(range(part.from_, part.to)) for part in parts])
