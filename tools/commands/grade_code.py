"""Run what participants wrote into by-hand/holes, apart from everything else: a line per folder, or a page."""

import argparse
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

from run_folder.plural import counted
from run_folder.printable import one_line
from tools.commands.grade import FORMATS, print_grades
from tools.errors import InputError
from tools.tables.fill import FilledTable
from tools.tables.judging import BLANK, RIGHT, WRONG, Grade, Judgement
from tools.tables.markdown import Table
from tools.tables.repository import ROOT


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folders", type=Path, nargs="+", metavar="FOLDER", help="a participant's copy of by-hand/holes")
    parser.add_argument("--format", choices=FORMATS, default="text", help="html: a page")


def run(arguments: argparse.Namespace) -> int:
    from tqdm import tqdm

    folders = list(dict.fromkeys(arguments.folders))
    same = Counter(folder.name for folder in folders)
    command = [sys.executable, "-m", "workshop.holes.grade", *(str(folder.absolute()) for folder in folders)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            lines = [*map(json.loads, tqdm(process.stdout, "grading", len(folders), leave=False, unit="folder"))]
        except KeyboardInterrupt:
            process.kill()
            raise
    if process.returncode:
        raise InputError(f"{' '.join(command[:3])} ended with exit code {process.returncode}")
    grades = [
        _grade(folder, folder.name if same[folder.name] == 1 else str(folder), line["holes"], line["isolated"])
        for folder, line in zip(folders, lines, strict=True)
    ]
    for grade in grades if arguments.format == "text" else ():
        for cell in (cell for _, cells in grade.checked for cell in cells if cell.verdict == WRONG):
            print(f"{grade.file}: {cell.row}: {one_line(cell.text)}")
    lead = f"{counted(len(grades), 'folder')} of code, run with inputs that were drawn after it was loaded."
    return print_grades(grades, arguments.format, "grade-code", lead)


def _grade(folder: Path, name: str, holes: list[tuple[str, str | None]], isolated: bool) -> Grade:
    if not holes:
        return Grade(str(folder), name, [], "no such folder")
    rows = [[hole, ""] for hole, _ in holes]
    table = Table(folder, "holes", "**Table holes** *The code*", ["Hole", "Verdict"], "", rows, [], 0)
    cells = [
        Judgement("holes", 0, hole, "Verdict", BLANK if wrong is None else WRONG if wrong else RIGHT, wrong or "")
        for hole, wrong in holes
    ]
    return Grade(str(folder), name, [(FilledTable(table, []), cells)], remark="" if isolated else "not isolated")
