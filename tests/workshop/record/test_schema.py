"""A key that is in one of the three and not in the others: the schema, logs/README.md, a committed record."""

import json
import re

import pytest

from tests.launching import REPO
from workshop.record.collectives import COLUMNS
from workshop.record.schema import STEPS_COLUMNS, SUMMARY_RECORD, RunRecord, types_of


def described(name: str) -> list[str]:
    """The keys or columns that the first column of a file's table in logs/README.md names."""
    sections = re.split(r"^## ", (REPO / "logs/README.md").read_text(), flags=re.MULTILINE)
    (section,) = (part for part in sections if part.startswith(f"{name}\n"))
    return [key for row in re.findall(r"^\| (`.*?) \|", section, re.MULTILINE) for key in re.findall(r"`(.+?)`", row)]


@pytest.mark.parametrize(
    ("schema", "name"),
    [(types_of(RunRecord), "run.json"), (SUMMARY_RECORD, "summary.json")],
    ids=["run.json", "summary.json"],
)
def test_keys_of_the_schema_are_those_of_the_description_and_of_the_records(schema: dict, name: str) -> None:
    assert set(described(name)) == set(schema)
    written = {key for path in REPO.glob(f"logs/reference/*/*/*/{name}") for key in json.loads(path.read_text())}
    assert written and written <= set(described(name))


def test_columns_of_the_logs_are_described_in_their_order() -> None:
    assert described("steps.csv") == list(STEPS_COLUMNS)
    assert described("collectives.csv") == COLUMNS
