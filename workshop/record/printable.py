"""Make others' text safe for a terminal: an escape sequence in a log can rewrite the lines above it."""

import os
import re
import sys
from collections.abc import Container, Iterable, Sequence

# Controls other than tab and line end; what turns the writing direction or has no width; halves of a character.
_HARMFUL = "\0-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff"
# A cell of a column of numbers: 1,020.5, 97 %, 1 to 4, 12.7 (30), or none.
_NUMBER = re.compile(r"(?:[+-]?\d[\d,.]*(?: [%s]| to \d+)?(?: \(\d[\d,.]*\))?|-|not measured)?")
_IN_TEXT, _IN_LINE = re.compile(f"[{_HARMFUL}]"), re.compile(f"[\t\n{_HARMFUL}]")


def printable(text: str) -> str:
    r"""The text with harmful characters as escapes: `\x1b` in place of the character."""
    return _IN_TEXT.sub(_escaped, text)


def one_line(text: str) -> str:
    """Return the text for one line or cell: as `printable`, with line ends and tabs escaped, too."""
    return text if text.isprintable() else _IN_LINE.sub(_escaped, text)  # the first is faster, and nearly always true


def spreadsheet_text(value: object) -> object:
    """Return a csv cell: a leading quote before text that a spreadsheet would compute; numbers stay."""
    if not isinstance(value, str) or not value.startswith(("=", "+", "-", "@")):
        return value
    return value if re.fullmatch(r"[+-][\d.,]+(?:[eE][+-]?\d+)?", value) else f"'{value}"


def markdown(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown; columns of numbers stand on the right."""
    rows = list(rows)
    lines = [f"| {' | '.join(cells)} |".replace("|  |", "| |") for cells in (titles, *rows)]
    columns = [any(column) and all(map(_NUMBER.fullmatch, column)) for column in zip(*rows, strict=True)]
    marks = ("---:|" if numbers else "---|" for numbers in columns or [False] * len(titles))
    return "\n".join([lines[0], f"|{''.join(marks)}", *lines[1:]])


def padded(rows: Sequence[Sequence[str]], right: Container[int] = ()) -> list[list[str]]:
    """The cells, filled up to the width of their column; `right`: columns whose text stands on the right."""
    columns = []
    for place, column in enumerate(zip(*rows, strict=True)):
        width = max(map(len, column))
        columns.append([cell.rjust(width) if place in right else cell.ljust(width) for cell in column])
    return [list(row) for row in zip(*columns, strict=True)]


def counted(number: int, noun: str, plural: str = "") -> str:
    """`1 run`, `2,048 runs`; `plural` where it is not the noun with an s."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def show(text: str) -> None:
    """Print a line. Where the output is closed or its disk full, nothing is shown any more; the training continues."""
    try:
        print(text, flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _escaped(match: re.Match) -> str:
    return match[0].encode("unicode_escape").decode()
