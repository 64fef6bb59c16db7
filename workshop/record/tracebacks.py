"""Read a job's output by lines, and mark the exceptions that its tracebacks end with, whatever their names are."""

from __future__ import annotations

import itertools
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from workshop.record.errors import open_plain

RAISED = "\0"  # stands before the exception that ends a traceback
# Prefixes of an error: a progress bar; the rank or the node as PyTorch, srun, pdsh, mpirun and Ray write it:
# `[rank0]: `, `[trainer0|0]:`, `[1,3]<stderr>:`, `3: `, `10.0.0.4: `, `node3: `, `(Worker pid=8) `; or a time.
BAR = r"^(?:[^|%]*\d%\|(?:[^|]*\|[^\]]*\])?\s*)?"
_TIME = r"\[?(?:(?:\d{4}-\d\d-\d\d[T ]|[A-Z][a-z]{2} +\d+ )[\d:.,]+|\d\d:\d\d:[\d.,]+)Z?\]? "
PREFIX = (
    r"(?:\[[\w.,|-]+\](?:<std(?:err|out)>)?: ?|\d[\d.]*: |(?!slurm)(?=[a-z][\w.-]{,63}: )[^\d:]+\d[\w.-]*: "
    rf"|[\w.-]{{1,63}} \[std(?:err|out)\] |\(\w{{1,63}} pid=\d+[^)]{{,63}}\) |{_TIME})"
)
START = rf"{BAR}{PREFIX}{{,3}}(?:[\s|]*{RAISED})?"
_TIMED = re.compile(rf"^((?:{PREFIX}){{,2}}?){_TIME}")
# The last line of a traceback, also without the lines above it; a data loader's worker repeats its own below.
EXCEPTION = rf"(?:[\w.]*(?:Error|Exception)|(?<={RAISED})[\w.<>]+)(?:: (?!Caught \w+ in )|:?\s*$)"
OWN_ERROR = r"(?:[\w-]+\.py: )?error(?: \(rank \d+\))?: "  # an InputError of the workshop, or argparse's
# Lines about the traceback that follows: Python ignores it, or it belongs to the same failure as the traceback above.
_IGNORED = "Exception ignored |--- Logging error ---"
_HANDLED = "During handling of the above"
_CHAINED = rf"{_HANDLED}|The above exception was the direct|\+-\+-+ 1 -"  # the last: in the box of an ExceptionGroup
_HEADER = re.compile(
    rf"{BAR}({PREFIX}{{,3}})(\s*(?:[|+] )?)(?:({_IGNORED})|({_CHAINED})"
    r"|(?:╭─+ |traceback : |Original |Exception Group )?Traceback \(most recent)"
)
# Behind a prefix that is none of these, as kubectl's; the next line has it, too, unless this one is of a logger.
_FOREIGN_HEADER = re.compile(r"(.{1,99}?)Traceback \(most recent call last\):\s*$")
_FIRST_FRAME = '  File "'
# A class with its module, or a class of Python or of the script itself: without a text only if it has two capitals, as
# other words stand alone, too.
_RAISED_FORM = re.compile(
    r"(?!\d|Warning\b)(?:(?:(?:\w+|<locals>)\.)+_*[A-Z]\w*|(?:[A-Za-z_]+\.)+[a-z]+|[A-Z]\w*[a-z]\w*(?=: )"
    r"|[A-Z]\w*[a-z]\w*[A-Z]\w*)(?:: |:?\s*$)"
)
# The line above a traceback that need not end a process: a logger's record, or a thread's.
_LOGGED = re.compile(r"\b(?:WARNING|ERROR|CRITICAL)\b(?!: )|Exception in thread ")
_LONGEST_MESSAGE = 20  # lines
# Beginnings of lines that do not continue an exception's message: another message, logger, launcher or rank.
_NOT_OF_MESSAGE = (
    rf"{PREFIX}|(?!nccl){EXCEPTION}|{OWN_ERROR}|Traceback|During handling|The above exception|frame #|File \""
    r"|terminate |Exception raised|\[?\d{4}-\d\d-\d\d|\[?[EFIW]\d{4} |[A-Z]{4,}: ?\w|\[Rank \d|srun: |slurm|={5}|-{5}"
    r"|\"{3}|\{'|pdsh@|the run goes on|warning: |Fatal Python|[^|]*\d%\||.*Watchdog caught"
)
_COLOUR = re.compile(rf"\x1b\[[\d;]*m|{RAISED}")
_LONGEST = 4096  # characters of a line that are searched


@dataclass
class Line:
    """A line without colours, counted from 1; a progress bar's carriage returns part lines of one number.

    Attributes: begin: what the lines begin with that continue an exception's message, without time, or None; logged:
        the exception need not have ended a process; handled: another was raised while this one was handled; last: the
        last exception that was raised from this one.
    """

    number: int
    text: str
    begin: str | None = None
    logged: bool = False
    handled: bool = False
    last: str = ""

    @property
    def shown(self) -> str:
        """Return the text without what marks an exception."""
        return self.text.replace(RAISED, "").strip()


@dataclass
class _Traceback:
    begin: str
    ignored: bool
    logged: bool
    exceptions: list[Line] = field(default_factory=list)  # of the same failure
    foreign: bool = False  # begins with a prefix that is none of PREFIX


def _printed(line: str) -> str:
    """Return what a program printed: Docker logs each line as an object of JSON."""
    logged = re.match(r'\{"log": ?("(?:[^"\\]|\\(?:["\\/bfnrt]|u[\da-fA-F]{4}))*")', line)
    return json.loads(logged[1], strict=False) if logged else line


def _lines(path: Path | str) -> Iterator[Line]:
    # newline="\n": carriage returns are no line ends to grep -n or an editor.
    with os.fdopen(open_plain(path), encoding="utf-8", errors="replace", newline="\n") as lines:
        number = 1
        while line := lines.readline(_LONGEST * 16):  # a file may be a single line
            for part in _printed(line).split("\r"):
                yield Line(number, _COLOUR.sub("", part[:_LONGEST]))
            number += line.endswith("\n")


def lines_of(path: Path | str, hint: re.Pattern[str]) -> Iterator[Line]:
    """Give the lines with a hint and the exceptions that end tracebacks, except those that Python ignores."""
    is_open: dict[str, _Traceback] = {}  # by rank
    ended: dict[str, _Traceback] = {}
    chained: dict[str, _Traceback] = {}  # ended, and another follows
    above = ""
    foreign: set[str] = set()  # what stands before "Traceback" in lines above
    for line in _lines(path):
        if foreign and _FIRST_FRAME in line.text:
            begin = _TIMED.sub(r"\1", line.text).partition(_FIRST_FRAME)[0]
            if begin in foreign or (not begin and not is_open):
                is_open[begin] = _Traceback(begin, ignored=False, logged=not begin, foreign=True)
                foreign.discard(begin)
        if not (is_open or hint.search(line.text)):
            above = line.text
            continue
        if header := _HEADER.match(line.text):
            rank = _TIMED.sub(r"\1", header[1])
            begin = rank + header[2].replace("+", "|")
            logged = bool(_LOGGED.search(above)) and "[rank" not in rank  # PyTorch's for an exception that ends a rank
            # In the message above, as that of a spawned process.
            quoted = above.rstrip().endswith(":") and not logged and rank not in is_open
            if (header[4] or quoted) and rank in ended:
                chained[rank] = ended.pop(rank)
                for exception in chained[rank].exceptions:
                    exception.handled |= _HANDLED in (header[4] or "")
            if not header[4] and not (rank in is_open and is_open[rank].ignored):
                is_open[rank] = chained.pop(rank, _Traceback(begin, bool(header[3]), logged))
                is_open[rank].begin = begin
        elif other := _FOREIGN_HEADER.match(_TIMED.sub(r"\1", line.text)):
            foreign.add(other[1])
        above, ignored = line.text, False
        text = _TIMED.sub(r"\1", line.text[len(re.match(BAR, line.text)[0]) :])
        for rank, traceback in list(is_open.items()):
            if text.startswith(traceback.begin) and _RAISED_FORM.match(text, len(traceback.begin)):
                ended[rank] = is_open.pop(rank)
                ignored = traceback.ignored
                exception = text[len(traceback.begin) :]
                line.text = f"{'' if traceback.foreign else line.text.removesuffix(exception)}{RAISED}{exception}"
                line.begin, line.logged = traceback.begin, traceback.logged
                for earlier in traceback.exceptions:
                    earlier.last = exception.strip()
                traceback.exceptions.append(line)
        if not ignored:
            yield line


def message_of(path: Path | str, first: Line) -> str:
    """Return the message that begins in this line, with the lines of the same rank that continue it."""
    texts, begin = [first.shown], first.begin
    if begin is None:
        if not re.match(rf"{START}\s*(?:{EXCEPTION}|what\(\):|Lmod )", first.text):
            return first.shown
        begin = re.match(rf"{BAR}({PREFIX}{{,3}})", first.text)[1]
    for line in itertools.takewhile(lambda line: line.number <= first.number + _LONGEST_MESSAGE, _lines(path)):
        if line.number > first.number:
            inner = line.text[len(begin) :].strip()
            wrapped = texts[-1].endswith(":") and re.match(EXCEPTION, inner)
            if not line.text.startswith(begin) or not inner or (re.match(_NOT_OF_MESSAGE, inner) and not wrapped):
                break
            texts.append(inner)
    message = " ".join(texts)
    return message if first.last in message else f"{message}; {first.last}"
