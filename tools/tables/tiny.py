"""The tables of an exercise for its tiny runs (tiny.env): the same figures, without the sizes of the real training.

A label that only names a size ("BLOOM-560m, 500", "4 x 4, fp16") becomes "tiny"; of one that also names something else
the size is cut off. Rows, columns and whole tables that then ask for nothing new are left out.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from tools.tables.fill import plan
from tools.tables.markdown import Table
from tools.tables.registry import SIZES, meaning

CAPTION_END = " (tiny runs)*"
_MODEL = re.compile(r"BLOOM-\w+(?:, [\d,]+(?: examples)?)?")
_SIZE_IN_LABEL = re.compile(
    r"_bs\d+_sl\d+|, \d+ (?:x \d+|epochs?|rows)|, [\d,]+ tokens"
    r"|^[\w.-]+, (?=\d+ \w|variant)"  # a model before its rung
)


def tiny_view(table: Table) -> Table:
    """The table for tiny runs; `plan` then asks for no size."""
    labels = table.label_columns
    columns = [_MODEL.sub("tiny", without_size(label)) for label in table.header]
    kept = [place for place, label in enumerate(columns) if place < labels or columns.index(label) == place]
    rows, lines = [], []
    for row, line in zip(table.rows, table.lines, strict=True):
        cells = [*map(without_size, row[:labels]), *row[labels:]]
        if not any(cells[:labels] == other[:labels] for other in rows):
            rows.append([cells[place] for place in kept])
            lines.append(line)
    return replace(
        table,
        caption=_MODEL.sub("tiny", table.caption).removesuffix("*") + CAPTION_END,
        header=[columns[place] for place in kept],
        separator="|" + "---|" * len(kept),
        rows=rows,
        lines=lines,
        tiny=True,
    )


def tiny_views(tables: Sequence[Table]) -> list[Table]:
    """The views of all tables, without those whose cells are all in an earlier view."""
    found, known = [], set()
    for view in map(tiny_view, tables):
        cells = {(cell.metric.definition, str(cell.where)) for row in plan(view) for cell in row if cell}
        if not cells <= known:
            found.append(view)
            known |= cells
    return found


def without_size(label: str) -> str:
    found = meaning(label)
    if found and found.metric is None and found.where and found.where.keys() <= SIZES:
        return "tiny"
    return _SIZE_IN_LABEL.sub("", label)
