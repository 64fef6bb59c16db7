"""Make others' text safe for a terminal: an escape sequence in a log can rewrite the lines above it."""

import os
import re
import sys

# Controls other than tab and line end; what turns the writing direction or has no width; halves of a character.
_HARMFUL = "\0-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff"
_IN_TEXT, _IN_LINE = re.compile(f"[{_HARMFUL}]"), re.compile(f"[\t\n{_HARMFUL}]")


def printable(text: str) -> str:
    r"""The text with harmful characters as escapes: `\x1b` in place of the character."""
    return _IN_TEXT.sub(_escaped, text)


def one_line(text: str) -> str:
    """Return the text for one line or cell: as `printable`, with line ends and tabs escaped, too."""
    return text if text.isprintable() else _IN_LINE.sub(_escaped, text)  # the first is faster, and nearly always true


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
