"""All participants' grades as one self-contained page: who has what, and which cell everybody got wrong."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from tools.page import site
from tools.tables.forms import BLANK, RIGHT, VERDICTS, WRONG, Grade

# By verdict: a mark that does not need its colour, and the class of its colour.
_MARKS = {RIGHT: ("\N{CHECK MARK}", "completed"), WRONG: ("\N{BALLOT X}", "failed"), BLANK: ("\N{MIDDLE DOT}", "word")}
_MOST_MISSED = 10  # cells in the list of those that most people got wrong


def render(grades: Sequence[Grade], lead: str) -> str:
    """The page's HTML, with its style in it.

    Args:
        lead: how many grades there are, and what they are about.
    """
    pages = site.environment()
    pages.globals |= {"marks": _MARKS, "verdicts": VERDICTS}
    tables = _tables(grades)
    style = (site.STATIC / "page.css").read_text("utf-8")
    page = pages.get_template("grades.html")
    return page.render(grades=grades, tables=tables, missed=_missed(tables), lead=lead, style=style)


def _tables(grades: Sequence[Grade]) -> list[dict[str, Any]]:
    """Each table that somebody filled in: for each cell everybody's judgement."""
    found: dict[tuple[str, bool], dict[str, Any]] = {}
    for grade in grades:
        for table, judged in [(filled.table, judged) for filled, judged in grade.checked]:
            title = re.sub(r"[*`]", "", table.caption).replace(f"Table {table.number}", f"Table {table.number}:", 1)
            anchor = f"table-{table.number}{'-tiny' if table.tiny else ''}"
            blank = {"anchor": anchor, "caption": title, "people": [], "cells": {}}
            one = found.setdefault((table.number, table.tiny), blank)
            one["people"].append(grade.name)
            several = len(table.header) - table.label_columns > 1
            for cell in judged:
                name = f"{cell.row}, {cell.column}" if several else cell.row
                one["cells"].setdefault(name, {})[grade.name] = cell
    return list(found.values())


def _missed(tables: list[dict[str, Any]]) -> list[tuple[dict[str, Any], str, int, int]]:
    """The cells that most people got wrong, the most frequent first: table, cell, number of wrong ones, of people."""
    counts = [
        (table, name, sum(cell.verdict == WRONG for cell in judged.values()), len(judged))
        for table in tables
        for name, judged in table["cells"].items()
    ]
    return sorted((one for one in counts if one[2]), key=lambda one: -one[2])[:_MOST_MISSED]
