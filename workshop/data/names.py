"""What DATASET means by its name alone: files or a data set of the hub, whole or a slice."""

from pathlib import Path

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
