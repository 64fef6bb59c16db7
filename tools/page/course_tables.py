"""The course's tables for the page: filled from one's own runs and, beside them, from the reference runs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from string import ascii_lowercase

from tools.logs.run import Run
from tools.tables.fill import FilledTable, fill
from tools.tables.labels import blank_tables, tiny_views
from tools.tables.markdown import BLOCK_START, Table
from tools.tables.repository import ROOT, documents, exercise_folder, exercises


@dataclass(frozen=True)
class CourseTable:
    """One blank table.

    Attributes:
        exercise: the folder that has it.
        own: filled from one's own runs; None: there is none of its exercises.
        references: filled from the reference runs of each machine that RESULTS.md has it from, the first one first.
    """

    exercise: str
    table: Table
    own: FilledTable | None
    references: list[tuple[str, FilledTable]]


def course_tables(own: Sequence[Run], reference: Sequence[Run]) -> list[CourseTable]:
    """All tables of the exercises, in the order in which the course meets them: by number.

    Those of tiny runs come last, and only where there are such runs.
    """
    blank = {folder.name: blank_tables(folder) for folder in exercises()}
    known = {table.number: (exercise, table) for exercise, found in blank.items() for table in found}
    machines = _reference_folders()
    places = [(run.folder.resolve(), run) for run in reference]
    found = []
    for number in sorted(known, key=lambda number: (len(number.rstrip(ascii_lowercase)), number)):
        (exercise, table), references = known[number], []
        for folders in machines.get((exercise, number), []):
            runs = [run for place, run in places if not set(folders).isdisjoint(place.parents)]
            references.append((", ".join(folder.name for folder in folders), fill(table, runs)))
        found.append(CourseTable(exercise, table, _filled(table, own), references))
    for exercise, tables in blank.items():
        for table in tiny_views(tables):
            if filled := _filled(table, own):
                found.append(CourseTable(exercise, table, filled, []))
    return found


def _filled(table: Table, runs: Sequence[Run]) -> FilledTable | None:
    """None: there is no run that the table could be about."""
    about = [run for run in runs if run.record.exercise in table.exercises and run.tiny == table.tiny]
    return fill(table, about) if about else None


def _reference_folders() -> dict[tuple[str, str], list[list[Path]]]:
    """(exercise, table) -> the folders of runs that each of the documents' generated blocks fills it from."""
    found: dict[tuple[str, str], list[list[Path]]] = {}
    for document in documents():
        for block in BLOCK_START.findall(document.read_text(encoding="utf-8")):
            filled = re.match(r"python -m tools fill (\S+) --logs", block)
            only = re.search(r"--only (\S+)", block)
            folders = [(ROOT / folder).resolve() for folder in re.findall(r"--logs (\S+)", block)]
            for table in blank_tables(exercise_folder(filled[1])) if filled else []:
                places = found.setdefault((filled[1], table.number), [])
                if (not only or table.number in only[1].split(",")) and folders not in places:
                    places.append(folders)
    return found
