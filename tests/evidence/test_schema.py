"""A key that is in one of the three and not in the others: the schema, logs/README.md, a committed record."""

import json
import re
from pathlib import Path
from typing import get_type_hints

import pytest

from evidence.schema import RunRecord, SummaryRecord

REPO = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("schema", "name"), [(RunRecord, "run.json"), (SummaryRecord, "summary.json")], ids=["run.json", "summary.json"]
)
def test_keys_of_the_schema_are_those_of_the_description_and_of_the_records(schema: type, name: str) -> None:
    section = re.split(r"^## ", (REPO / "logs/README.md").read_text(), flags=re.MULTILINE)
    (table,) = (part for part in section if part.startswith(f"{name}\n"))
    described = {
        key for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for key in re.findall(r"`(.+?)`", row)
    }
    assert described == set(get_type_hints(schema))
    written = {key for path in REPO.glob(f"logs/reference/*/*/*/{name}") for key in json.loads(path.read_text())}
    assert written and written <= described
