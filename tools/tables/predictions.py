"""Predictions: the questions of a README as a form, and a participant's answers beside the measured figures."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from tools.tables.fill import Cell, FilledTable
from tools.tables.judging import BLANK, WRONG, Checked
from tools.tables.labels import dictionary_of, meaning, normalised
from tools.tables.markdown import BY_HAND, grids, is_blank, section
from workshop.run_folder.printable import markdown

_TITLE, _COLUMN = "Prediction", "Yours"


def questions(folder: Path) -> list[str]:
    """The numbered questions below a README's heading *Predict*, or its rows that wait for a prediction."""
    text = (folder / "README.md").read_text(encoding="utf-8")
    asked = re.findall(r"^\d+\. (.+(?:\n   .+)*)", section(text, "predict") or "", re.MULTILINE)
    for rows in [grid.rows for grid in grids(text) if "Your prediction" in grid.header]:
        asked += [f"The gain of rung {row[0]}" for row in rows if is_blank(row[-1])]
    return [" ".join(re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", question).split()) for question in asked]


def form(folder: Path) -> str:
    """A table with a cell for each prediction, "" if nothing is asked."""
    rows = [(f"{number}. {question}", BY_HAND) for number, question in enumerate(questions(folder), 1)]
    return markdown((_TITLE, _COLUMN), rows) if rows else ""


def answers(checked: Checked, text: str, show: bool) -> Iterator[str]:
    """A line for each prediction in a form, and below it one for each figure that the exercise's tables.toml names.

    Args:
        checked: the form's tables.
        text: the form.
        show: also figures of cells that the participant has not read, or read wrongly.
    """
    typed = [row for grid in grids(text) if grid.header[:2] == [_TITLE, _COLUMN] for row in grid.rows]
    folder = checked[0][0].table.path.parent
    cells = dictionary_of(folder).predictions
    for question, yours, *_ in typed:
        if not is_blank(yours):
            number = question.partition(".")[0]
            yield f"prediction {number}: {yours}"
            for place in cells.get(number, []):
                yield f"  Table {place.replace(' | ', ', ')}: {_found(checked, place, show)}"


def _found(checked: Checked, place: str, show: bool) -> str:
    """The filled cell "TABLE | ROW | COLUMN", with the labels of full runs."""
    number, row, column = place.split(" | ")
    for filled, judged in checked:
        cell = cell_at(filled, row, column) if filled.table.number == number else None
        if cell is None:
            continue
        position, text = cell
        unread = [one for one in judged if (one.row, one.column) == position and one.verdict in (BLANK, WRONG)]
        return "first read it" if unread and not show else text.text
    return "not in this form"


def cell_at(filled: FilledTable, row: str, column: str) -> tuple[tuple[str, str], Cell] | None:
    """A cell with its labels; in a table about tiny runs that of the label without its size."""
    folder, labels = filled.table.path.parent, filled.table.label_columns
    rows, columns = _names(folder, row.split(" / ")), _names(folder, [column])
    for texts, cells in zip(filled.table.rows, filled.cells, strict=True):
        for name, cell in zip(filled.table.header, cells, strict=True):
            if cell and [*map(normalised, texts[:labels])] in rows and [normalised(name)] in columns:
                return (" / ".join(texts[:labels]), name), cell
    return None


def _names(folder: Path, labels: Sequence[str]) -> list[list[str]]:
    """Labels as written, and as tables about tiny runs have them."""
    tiny = [found.tiny if (found := meaning(folder, label)) else label for label in labels]
    return [[normalised(label) for label in some] for some in (labels, tiny)]
