"""Regenerate the generated blocks of the documents, or name those that have drifted from the logs.

A block is `<!-- generated: python -m tools fill baseline --logs logs/reference/h200x1 -->` to `<!-- end generated -->`;
its content is what the command prints in the repository's root. A plot that it draws (`--output FILE.svg` at the end)
is compared, too. Then come the figures that sentences quote from tables (tools/tables/prose_figures.py).
"""

import argparse
import contextlib
import io
import os
import re
import shlex
import tempfile
from itertools import takewhile
from pathlib import Path

from tools.errors import InputError, NoRunsError
from tools.logs.runs import find_runs
from tools.tables import prose_figures
from tools.tables.markdown import BLOCK_END, BLOCK_START
from tools.tables.repository import ROOT, documents
from workshop.record.printable import counted, markdown

# Commands that only read and print: a README must not be able to start anything else.
_ALLOWED = ("fill", "plot", "score", "plan", "profile", "runs", "report --folders")
_BLOCK = re.compile(
    rf"^(?P<start>[ \t]*{BLOCK_START.pattern}[ \t]*)$(?:\n[\s\S]*?^(?P<end>[ \t]*{BLOCK_END}[ \t]*)$)?",
    re.MULTILINE,
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a block has drifted")
    parser.add_argument("--folders", type=Path, metavar="FOLDER", help="only print what a folder's folders of runs are")
    parser.add_argument("--root", type=Path, default=ROOT, help="the repository (default: this one)")


def run(arguments: argparse.Namespace) -> int:
    if arguments.folders:
        print(folders_table(arguments.folders))
        return 0
    root = arguments.root.resolve()
    before = {path: path.read_text(encoding="utf-8") for path in documents(root)}
    plots: dict[Path, str] = {}
    tables = {path: regenerated(path, text, root, plots) for path, text in before.items()}
    drifted = {path: text for path, text in plots.items() if not path.exists() or path.read_text("utf-8") != text}
    block = "has drifted from the logs" if arguments.check else "updated"
    for path in drifted:
        print(f"{path.relative_to(root)}: plot {block}")
    for path, text in tables.items():
        after, figures = prose_figures.refreshed(path, text, lambda file: tables.get(file) or file.read_text("utf-8"))
        place = path.relative_to(root)
        if text != before[path]:
            print(f"{place}: generated block {block}")
        for figure in figures:
            print(f"{place}:{figure}")
        if after != before[path]:
            drifted[path] = after
    count = sum(len(_BLOCK.findall(text)) for text in before.values())
    files = f"{counted(len(drifted), 'file')} {'drifted' if arguments.check else 'updated'}"
    print(f"{counted(count, 'generated block')}, {files}")
    if drifted and arguments.check:
        print("next: python -m tools report")
        return 1
    for path, text in drifted.items():
        path.write_text(text, encoding="utf-8")
    return 0


def folders_table(folder: Path) -> str:
    """A Markdown table of folders of runs: their machine, their runs' commits, and runs.txt's first sentence."""
    rows = []
    for place in sorted(path for path in folder.iterdir() if path.is_dir()):
        records = [run.record for run in find_runs(place)]
        gpus = max((record.gpu_names for record in records), key=len, default=[])
        machine = f"{len(gpus)} x {gpus[0].removeprefix('NVIDIA ')}" if gpus else "-"
        commits = sorted({f"`{record.git_commit[:7]}`" for record in records if record.git_commit})
        runs_list = place / "runs.txt"
        lines = runs_list.read_text(encoding="utf-8").splitlines() if runs_list.exists() else []
        comment = " ".join(line.removeprefix("# ") for line in takewhile(lambda line: line.startswith("#"), lines))
        what = re.split(r"(?<=[\w)])[.:] ", comment)[0].rstrip(".")
        what = what or ", ".join(sorted({record.exercise for record in records}))
        rows.append((f"`{place.name}`", machine, str(len(records)), ", ".join(commits), what))
    return markdown(("Folder", "Machine", "Runs", "Commits", "What for"), rows)


def regenerated(document: Path, text: str, root: Path, plots: dict[Path, str]) -> str:
    """The document's text with the content of every block replaced; adds the plots' texts to `plots`.

    Raises:
        InputError: a block does not end, or its command is not allowed or fails.
    """

    def block(match: re.Match) -> str:
        place = f"{document}:{text.count(chr(10), 0, match.start()) + 1}"
        if match["end"] is None:
            raise InputError(f"{place}: the generated block has no {BLOCK_END}")
        words = _words(match[2], place)
        if "--output" not in words:
            output = _output(words, place, root)
        else:
            path = root / words[-1]
            with tempfile.TemporaryDirectory() as folder:
                drawn = Path(folder, path.name)
                output = _output([*words[:-1], str(drawn)], place, root)
                plots[path] = drawn.read_text(encoding="utf-8")
            link = os.path.relpath(path, document.parent)
            output = re.sub(r"^(!\[.*\])\(.*\)$", rf"\1({link})", output, flags=re.MULTILINE)
        return f"{match['start']}\n\n{output.strip(chr(10))}\n\n{match['end']}"

    return _BLOCK.sub(block, text)


def _words(command: str, place: str) -> list[str]:
    """The command's words, if it is one that only reads and prints."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise InputError(f"{place}: {command!r}: {error}") from error
    if words[:3] != ["python", "-m", "tools"] or len(words) < 4 or not " ".join(words[3:]).startswith(_ALLOWED):
        raise InputError(f"{place}: {command!r}: only `python -m tools {'|'.join(_ALLOWED)} ...` may fill a block")
    writes = any(word.startswith("--ou") for word in words)  # as argparse takes it
    if writes and not (words[-2] == "--output" and words[-1].endswith(".svg")):
        raise InputError(f"{place}: {command!r}: expected `--output FILE.svg` at its end: text, which can be compared")
    return words


def _output(words: list[str], place: str, root: Path) -> str:
    """What the command prints in the repository's root."""
    from tools.__main__ import main

    printed, complaint = io.StringIO(), io.StringIO()
    with contextlib.chdir(root), contextlib.redirect_stdout(printed), contextlib.redirect_stderr(complaint):
        try:
            code = main(words[3:])
        except SystemExit as usage_error:
            code = usage_error.code
    if code:
        kind = NoRunsError if code == 3 else InputError
        raise kind(f"{place}: {shlex.join(words)}: {complaint.getvalue().strip()}")
    return printed.getvalue()
