"""Filled tables as CSV and JSON for other programs: figures unrounded, with their unit."""

import csv
import io
import json
from collections.abc import Iterator
from typing import Any

from tools.tables.fill import FilledTable


def cells(filled: list[FilledTable]) -> Iterator[dict[str, Any]]:
    """One entry per cell that the logs fill: `value` is null where there is no figure and `text` says why."""
    for table in filled:
        labels = table.table.label_columns
        for row, own in zip(table.table.rows, table.cells, strict=True):
            for name, cell in zip(table.table.header, own, strict=True):
                if cell is not None:
                    yield {
                        **{"table": table.table.number, "row": " / ".join(row[:labels]), "column": name},
                        **{"value": cell.value, "unit": cell.metric.unit, "text": cell.text},
                    }


def to_json(filled: list[FilledTable]) -> str:
    """{"cells": [...], "runs": [folders]}"""
    folders = {str(run.folder): None for table in filled for run in table.runs}
    return json.dumps({"cells": list(cells(filled)), "runs": list(folders)}, indent=2) + "\n"


def to_csv(filled: list[FilledTable]) -> str:
    """A header, then a line per cell."""
    text = io.StringIO()
    writer = csv.DictWriter(text, ["table", "row", "column", "value", "unit", "text"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(cells(filled))
    return text.getvalue()


EXPORTS = {"csv": to_csv, "json": to_json}
