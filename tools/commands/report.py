"""Regenerate the generated blocks of the documents, or name those that have drifted from the logs.

A block is `<!-- generated: python -m tools fill baseline --logs logs/reference/h200x1 -->` to `<!-- end generated -->`;
its content is what the command prints in the repository's root. Then come the figures that sentences quote from tables
(tools/tables/prose_figures.py).
"""

import argparse
import contextlib
import io
import re
import shlex
from pathlib import Path

from run_folder.plural import counted
from tools.errors import InputError, NoRunsError
from tools.tables import prose_figures
from tools.tables.markdown import BLOCK_END, BLOCK_START
from tools.tables.repository import ROOT, documents

# Commands that only read and print: a README must not be able to start anything else.
_ALLOWED = ("fill", "plot", "plan", "runs")
_BLOCK = re.compile(
    rf"^(?P<start>[ \t]*{BLOCK_START.pattern}[ \t]*)$(?:\n[\s\S]*?^(?P<end>[ \t]*{BLOCK_END}[ \t]*)$)?",
    re.MULTILINE,
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a block has drifted")
    parser.add_argument("--root", type=Path, default=ROOT, help="the repository (default: this one)")


def run(arguments: argparse.Namespace) -> int:
    root = arguments.root.resolve()
    before = {path: path.read_text(encoding="utf-8") for path in documents(root)}
    blocks = {path: regenerated(path, text, root) for path, text in before.items()}
    tables = {path: text for path, (text, _) in blocks.items()}
    drifted = 0
    for path, text in tables.items():
        after, figures = prose_figures.refreshed(path, text, lambda source: _text(source, tables))
        place, block = path.relative_to(root), "has drifted from the logs" if arguments.check else "updated"
        if text != before[path]:
            print(f"{place}: generated block {block}")
        for figure in figures:
            print(f"{place}:{figure}")
        if after != before[path]:
            drifted += 1
            if not arguments.check:
                path.write_text(after, encoding="utf-8")
    count = sum(count for _, count in blocks.values())
    files = f"{counted(drifted, 'file')} {'drifted' if arguments.check else 'updated'}"
    print(f"{counted(count, 'generated block')}, {files}")
    if drifted and arguments.check:
        print("next: python -m tools report")
        return 1
    return 0


def _text(source: Path, tables: dict[Path, str]) -> str:
    """A file that a figure comes from: as regenerated, or as it is."""
    try:
        return tables[source] if source in tables else source.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{source}: no such file, but a figure is to come from it") from error


def regenerated(readme: Path, text: str, root: Path) -> tuple[str, int]:
    """The README's text with the content of every block replaced, and the number of blocks.

    Raises:
        InputError: a block does not end, or its command is not allowed or fails.
    """

    def block(match: re.Match) -> str:
        place = f"{readme}:{text.count(chr(10), 0, match.start()) + 1}"
        if match["end"] is None:
            raise InputError(f"{place}: the generated block has no {BLOCK_END}")
        output = _output(match[2], place, root).strip("\n")
        return f"{match['start']}\n\n{output}\n\n{match['end']}"

    return _BLOCK.subn(block, text)


def _output(command: str, place: str, root: Path) -> str:
    from tools.__main__ import main

    try:
        words = shlex.split(command)
    except ValueError as error:
        raise InputError(f"{place}: {command!r}: {error}") from error
    if words[:3] != ["python", "-m", "tools"] or len(words) < 4 or words[3] not in _ALLOWED:
        raise InputError(f"{place}: {command!r}: only `python -m tools {'|'.join(_ALLOWED)} ...` may fill a block")
    printed, complaint = io.StringIO(), io.StringIO()
    with contextlib.chdir(root), contextlib.redirect_stdout(printed), contextlib.redirect_stderr(complaint):
        try:
            code = main(words[3:])
        except SystemExit as usage_error:
            code = usage_error.code
    if code:
        raise (NoRunsError if code == 3 else InputError)(f"{place}: {command!r}: {complaint.getvalue().strip()}")
    return printed.getvalue()
