"""Does a day of the timetable fit the room? Packs the must-do runs of all groups onto its GPUs, slot by slot.

Reads the timetable (instructor/README.md) and the forms' cells.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.errors import InputError
from tools.plan.predict import Range
from tools.tables.markdown import markdown, tables_in
from tools.tables.table import blank_tables, exercise_folder
from workshop.record.exercises import REPO, exercises_with

_TIMETABLE = REPO / "instructor" / "README.md"


@dataclass(frozen=True)
class Run:
    """Attributes: line: its number in the exercise's list; time_s: of the whole job."""

    line: str
    gpus: int
    time_s: Range


@dataclass(frozen=True)
class Slot:
    """Attributes: minutes: with the break before it, in which its runs may start; exercises: their folders."""

    start: str
    minutes: int
    exercises: list[Path]


@dataclass(frozen=True)
class Room:
    """GPUs on nodes of one size, and how many groups share them."""

    groups: int
    gpus: int
    per_node: int

    def minutes(self, runs: Sequence[Run], sets: int, end: str = "expected") -> float:
        """When the last of these runs ends if each is made `sets` times, the largest first, as soon as GPUs are free.

        Args: end: of the planner's interval. Raises InputError for a run with more GPUs than a node has.
        """
        sizes = [min(self.per_node, self.gpus - first) for first in range(0, self.gpus, self.per_node)]
        nodes = [[0.0] * size for size in sizes]  # when each GPU is free
        for gpus, time_s in sorted(((run.gpus, getattr(run.time_s, end)) for run in runs * sets), reverse=True):
            if gpus > max(sizes):
                raise InputError(f"a run needs {gpus} GPUs of one node; this room has {max(sizes)}")
            node = min((node for node in nodes if len(node) >= gpus), key=lambda node: sorted(node)[gpus - 1])
            node.sort()
            node[:gpus] = [node[gpus - 1] + time_s / 60] * gpus
        return max(max(node) for node in nodes)

    def sets(self, runs: Sequence[Run], minutes: float) -> int:
        """How often all runs can be made in this time, at most once for each group, at least once."""
        fitting = (sets for sets in range(self.groups, 1, -1) if self.minutes(runs, sets) <= minutes)
        return next(fitting, 1)


def slots(day: str) -> list[Slot]:
    """The slots of `day-1` and so on in which exercises with runs are taught."""
    table = next(one for one in tables_in(_TIMETABLE.read_text("utf-8")) if one.header[:2] == ["Day", "From"])
    folders, found, before = {folder.name: folder for folder in exercises_with("submit.txt")}, [], 0
    for number, start, minutes, what, *_ in table.rows:
        if f"day-{number}" == day:
            named = re.split("[:,]", what)[0].split(" and ")  # "fsdp", "break: start FSDP's runs"
            if own := [folders[name] for name in named if name in folders]:
                found.append(Slot(start, int(minutes) + before, own))
            before = int(minutes) if named[0] in ("break", "lunch") else 0
    if not found:
        days = ", ".join(sorted({f"day-{row[0]}" for row in table.rows}))
        raise InputError(f"{day}: not in the timetable; expected one of {days}")
    return found


def text(day: str, room: Room, runs_of: dict[str, list[Run]]) -> str:
    """What fits, what overruns, and the sheet to print: of each group the lines, cells, slot and GPUs.

    Args: runs_of: by the exercise's name its must-do runs.
    """
    rows, notes, sheet = [], [], []
    by_hand = {name: sum(table.by_hand for table in blank_tables(exercise_folder(name))) for name in runs_of}
    for slot in slots(day):
        runs = [run for folder in slot.exercises for run in runs_of[folder.name]]
        names = " and ".join(folder.name for folder in slot.exercises)
        if not runs:
            notes.append(f"{names}: nobody has measured how long its runs take")
            continue
        sets = room.sets(runs, slot.minutes)
        everybody, expected, most = (room.minutes(runs, *one) for one in [(room.groups,), (sets,), (sets, "largest")])
        hours = sets * sum(run.gpus * run.time_s.expected for run in runs) / 3600
        minutes = [f"{value:.0f}" for value in (slot.minutes, expected, most)]
        rows.append([slot.start, names, str(sets * len(runs)), f"{hours:.1f}", *minutes])
        if sets < room.groups:
            overrun = f"{names}: {everybody:.0f} of {slot.minutes} minutes if every group makes its runs"
            notes.append(f"{overrun}: share them, {sets} x all runs for {room.groups} groups")
        elif most > slot.minutes:
            notes.append(f"{names}: fits by the expected times, not by the largest ones")
        for group in range(room.groups):
            sheet += [(group, slot, part) for part in _share(slot, runs_of, by_hand, group, room, sets)]
    head = f"{room.groups} groups of three people, {room.gpus} GPUs, {day}: the must-do runs"
    titles = ["From", "Exercise", "Runs", "GPU-hours", "Minutes there are", "Runs take", "At most"]
    cells = [[str(group + 1), slot.start, *part] for group, slot, part in sorted(sheet, key=lambda one: one[0])]
    return "\n\n".join(
        [head, markdown(titles, rows), *notes, markdown(["Group", "Slot", "Exercise", "Lines", "Cells", "GPUs"], cells)]
    )


def _share(
    slot: Slot, runs_of: dict[str, list[Run]], by_hand: dict[str, int], group: int, room: Room, sets: int
) -> list[list[str]]:
    """A row per exercise: the lines of this group, which shares one set of runs with every `sets`-th group after it."""
    found = []
    for folder in slot.exercises:
        members = range(group % sets, room.groups, sets)
        own = runs_of[folder.name][members.index(group) :: len(members)]
        lines = "all must-do" if len(members) == 1 else ", ".join(run.line for run in own)
        most = max((run.gpus for run in own), default=0)
        found.append([folder.name, lines, str(by_hand[folder.name]), str(most)])
    return found
