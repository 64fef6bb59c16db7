"""Regenerate the generated blocks of the documents, or name those that have drifted from the logs.

CONTRIBUTING.md shows a block, and a figure in a sentence with the list behind it. A name in that list stands for a
cell, or for one of the FUNCTIONS of two names above it. The sentence decides the number of decimals.
"""

import argparse
import contextlib
import io
import os
import re
import shlex
import tempfile
from collections.abc import Callable
from itertools import takewhile
from pathlib import Path

from tools.errors import InputError, NoRunsError
from tools.logs.runs import find_runs
from tools.tables.markdown import BLOCK_END, BLOCK_START, cells_named, markdown, section, tables_in
from workshop.record.exercises import FURTHER, REPO
from workshop.record.printable import counted

_DOCUMENTS = ("README.md", "RESULTS.md", "START.md", "PLANNER.md")
# Commands that only read and print: a README must not be able to start anything else.
_ALLOWED = ("fill", "plot", "score", "plan", "profile", "runs", "report --folders")
_BLOCK = re.compile(
    rf"^(?P<start>[ \t]*{BLOCK_START.pattern}[ \t]*)$(?:\n[\s\S]*?^(?P<end>[ \t]*{BLOCK_END}[ \t]*)$)?",
    re.MULTILINE,
)

# For figures that sentences quote.
FUNCTIONS: dict[str, Callable[[float, float], float]] = {
    "ratio": lambda first, second: first / second,
    "difference": lambda first, second: first - second,
    "percent": lambda first, second: 100 * first / second,
    "percent_less": lambda first, second: 100 * (1 - first / second),
}
_LIST = re.compile(r"^<!-- figures\n(.*?)^-->$", re.MULTILINE | re.DOTALL)
_CELLS = re.compile(r"(\w+(?: \w+)*): (\S+) (.+ \| .+)")
_QUOTE = re.compile(r"((?<![\w.])-?\d[\d,]*(?:\.\d+)?|not measured|OOM|)<!--(\w+)-->")
_NUMBER = re.compile(r"-?\d[\d,]*(?:\.(\d+))?")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a block has drifted")
    parser.add_argument("--folders", type=Path, metavar="FOLDER", help="only print what a folder's folders of runs are")


def main(arguments: argparse.Namespace) -> int:
    if arguments.folders:
        print(folders_table(arguments.folders))
        return 0
    before = {path: path.read_text(encoding="utf-8") for path in documents()}
    plots: dict[Path, str] = {}
    tables = {path: regenerated(path, text, plots) for path, text in before.items()}
    drifted = {path: text for path, text in plots.items() if not path.exists() or path.read_text("utf-8") != text}
    block = "has drifted from the logs" if arguments.check else "updated"
    for path in drifted:
        print(f"{path.relative_to(REPO)}: plot {block}")
    for path, text in tables.items():
        after, figures = refreshed(path, text, lambda file: tables.get(file) or file.read_text("utf-8"))
        place = path.relative_to(REPO)
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


def documents() -> list[Path]:
    """Every document that may have generated blocks; none in hidden folders and participants' runs."""
    places = ("", "[!.]*/", f"{FURTHER}/*/", "logs/reference/")
    paths = {path for name in _DOCUMENTS for place in places for path in REPO.glob(f"{place}{name}")}
    return sorted(paths | set(REPO.glob("instructor/answers/*.md")))


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


def regenerated(document: Path, text: str, plots: dict[Path, str]) -> str:
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
            output = _output(words, place)
        else:
            path = REPO / words[-1]
            with tempfile.TemporaryDirectory() as folder:
                drawn = Path(folder, path.name)
                output = _output([*words[:-1], str(drawn)], place)
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


def _output(words: list[str], place: str) -> str:
    """The command's output in the repository's root."""
    from tools.__main__ import main

    printed, complaint = io.StringIO(), io.StringIO()
    with contextlib.chdir(REPO), contextlib.redirect_stdout(printed), contextlib.redirect_stderr(complaint):
        try:
            code = main(words[3:])
        except SystemExit as usage_error:
            code = usage_error.code
    if code:
        kind = NoRunsError if code == 3 else InputError
        raise kind(f"{place}: {shlex.join(words)}: {complaint.getvalue().strip()}")
    return printed.getvalue()


# ---- quoted figures ----


def refreshed(path: Path, text: str, read: Callable[[Path], str]) -> tuple[str, list[str]]:
    """The file's text with every quoted figure as its table has it, and a line on each that differed.

    `read` gives the text of a file that a figure comes from.

    Raises:
        InputError: a definition names no cell, or several, or is no function of two figures; a quoted figure has no
            definition.
    """

    def line(position: int) -> int:
        return text.count("\n", 0, position) + 1

    titles: dict[str, str] = {}
    values: dict[str, float | str] = {}
    differed = []
    for block in _LIST.finditer(text):
        for number, definition in enumerate(block[1].splitlines(), line(block.start(1))):
            place = f"{path}:{number}"
            if match := _CELLS.fullmatch(definition):
                names, cells = match[1].split(), [" | ".join(labels) for labels in cells_named(match[3])]
                if len(names) != len(cells):
                    raise InputError(f"{place}: {definition!r}: expected as many names as rows or columns, as ROW; ROW")
                titles |= dict(zip(names, cells, strict=True))
                values |= {name: _cell(path, place, match[2], titles[name], read) for name in names}
                continue
            name, _, titles[name] = definition.partition(": ")
            try:
                function, first, second = titles[name].split()
                values[name] = FUNCTIONS[function](values[first], values[second])
            except (ValueError, KeyError, TypeError, ZeroDivisionError) as error:
                forms = f"NAME: FILE#SECTION TABLE | ROW | COLUMN, or NAME: {' or '.join(FUNCTIONS)} of two names above"
                raise InputError(f"{place}: {definition!r}: expected {forms}") from error

    def figure(match: re.Match) -> str:
        (before, name), place = match.groups(), f"{path}:{line(match.start())}: {match[0]}"
        if name not in titles:
            raise InputError(f"{place}: not defined")
        after, written = values[name], _NUMBER.fullmatch(before)
        if not isinstance(after, str):
            if not written:
                raise InputError(f"{place}: no number, expected {after:,}")
            after = f"{after:,.{len(written[1] or '')}f}"
        if after != before:
            differed.append(f"{line(match.start())}: {before}, but {titles[name]!r} is {after}")
        return f"{after}<!--{name}-->"

    return _QUOTE.sub(figure, text), differed


def _cell(path: Path, place: str, target: str, title: str, read: Callable[[Path], str]) -> float | str:
    """The number, or the text, of the cell that a title names: "Table 10 | FULL_SHARD | Samples/s"."""
    file, _, anchor = target.partition("#")
    text = read((path.parent / file).resolve() if file else path)
    if anchor and (part := section(text, anchor)) is None:
        raise InputError(f"{place}: {file or path.name} has no heading #{anchor}")
    table, *labels, column = title.split(" | ")
    cells = [
        row[grid.header.index(column)]
        for grid in tables_in(part if anchor else text)
        if grid.name == table and column in grid.header
        for row in grid.rows
        if row[: len(labels)] == labels
    ]
    if len(cells) != 1:
        raise InputError(f"{place}: {title!r} is {len(cells)} cells of {target}, not 1")
    match = _NUMBER.match(cells[0])
    return float(match[0].replace(",", "")) if match else cells[0]
