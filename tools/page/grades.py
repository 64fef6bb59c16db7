"""All participants' grades as one self-contained page: who has what, and which cell everybody got wrong."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from tools.page import rendering
from tools.tables.fill import FilledTable
from tools.tables.judging import BLANK, RIGHT, VERDICTS, WRONG, Grade

# By verdict: a mark that does not need its colour, and the class of its colour.
_MARKS = {RIGHT: ("\N{CHECK MARK}", "completed"), WRONG: ("\N{BALLOT X}", "failed"), BLANK: ("\N{MIDDLE DOT}", "word")}
_MOST_MISSED = 10  # cells in the list of those that most people got wrong


def render(grades: Sequence[Grade], lead: str) -> str:
    """The page's HTML, with its style in it.

    Args:
        lead: how many grades there are, and what they are about.
    """
    pages = rendering.environment()
    pages.globals |= {"marks": _MARKS, "verdicts": VERDICTS}
    tables = _tables(grades)
    return pages.get_template("grades.html").render(
        grades=grades,
        tables=tables,
        missed=_missed(tables),
        command="grade",
        lead=lead,
        style=(rendering.STATIC / "page.css").read_text("utf-8"),
    )


def _tables(grades: Sequence[Grade]) -> list[dict[str, Any]]:
    """Each table that somebody filled in: per cell what each participant's verdict is."""
    found: dict[tuple[str, bool], dict[str, Any]] = {}
    for grade in grades:
        for filled, judged in grade.checked:
            table = filled.table
            one = found.setdefault((table.number, table.tiny), _blank_table(filled))
            one["people"].append(grade.name)
            for cell in judged:
                one["cells"].setdefault((cell.row, cell.column), {})[grade.name] = cell
    for one in found.values():
        counts = {place: Counter(cell.verdict for cell in by.values()) for place, by in one["cells"].items()}
        one["counts"] = counts
        one["places"] = [cell["place"] for row in one["rows"] for cell in row if cell["place"] in counts]
        one["wrong"] = [
            (row, column, name, cell.text)
            for row, column in one["places"]
            for name, cell in one["cells"][row, column].items()
            if cell.verdict == WRONG
        ]
    return list(found.values())


def _blank_table(filled: FilledTable) -> dict[str, Any]:
    table, labels = filled.table, filled.table.label_columns
    names = [" / ".join(row[:labels]) for row in table.rows]
    words = re.sub(r"[*`]", "", table.caption)
    return {
        "anchor": f"table-{table.number}{'-tiny' if table.tiny else ''}",
        "caption": words.replace(f"Table {table.number}", f"Table {table.number}:", 1),
        "header": table.header,
        "labels": labels,
        "rows": [
            [{"label": text, "place": (name, column)} for text, column in zip(row, table.header, strict=True)]
            for name, row in zip(names, table.rows, strict=True)
        ],
        "people": [],
        "cells": {},
    }


def _missed(tables: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The cells that most people got wrong, the most frequent first."""
    cells = [
        {"table": table, "row": row, "column": column, "wrong": count[WRONG], "of": count.total()}
        for table in tables
        for (row, column), count in table["counts"].items()
        if count[WRONG]
    ]
    return sorted(cells, key=lambda one: -one["wrong"])[:_MOST_MISSED]
