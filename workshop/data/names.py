"""What DATASET means by its name alone, files or a data set of the hub, whole or a slice; and what a row must hold."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from workshop.errors import WorkshopError

SUFFIXES = (".json", ".jsonl", ".csv", ".parquet", ".txt")


def is_path(dataset: str) -> bool:
    """Whether DATASET means files. `rajpurkar/squad` does not, unless something of that name exists here."""
    name = name_and_slice(dataset)[0]
    if name.endswith(SUFFIXES) or name.startswith(("/", "./", "../", "~")) or "*" in name:
        return True
    return "/" in name and Path(name).exists()


def name_and_slice(dataset: str) -> tuple[str, str]:
    """The name or path, and the split or slice that follows its colon; "" without one."""
    name, _, spec = (dataset, "", "") if Path(dataset).exists() else dataset.partition(":")
    return name, spec


def text_of(at: str, row: Any, key: str) -> str:
    """The text `row[key]`, which must not be blank. Raises WorkshopError naming the place `at` and the key."""
    value = row.get(key) if isinstance(row, dict) else None
    if not isinstance(value, str) or not value.strip():
        found = "nothing" if value is None else "an empty text" if isinstance(value, str) else repr(value)[:40]
        raise WorkshopError(f"{at}: {key}: found {found}, expected a text")
    return value


def items_of(prefix: str, row: Any, key: str) -> Iterator[tuple[str, Any]]:
    """The elements of the list `row[key]`, each with its place: `prefix`, the key and a number."""
    items = row.get(key) if isinstance(row, dict) else None
    if not isinstance(items, list):
        found = "nothing" if items is None else repr(items)[:40]
        raise WorkshopError(f"{prefix}{key}: found {found}, expected a list")
    return ((f"{prefix}{key}[{index}]", item) for index, item in enumerate(items))
