"""Fills blank tables: selects the runs of each cell, and writes their figure or why there is none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import stdev

from tools.errors import InputError, UnavailableError
from tools.logs.figures import Figure, median_of
from tools.logs.run import NoneOf, Run, Where
from tools.tables import markdown
from tools.tables.comparisons import COMPARISONS, Select
from tools.tables.labels import BlankCell, blank_cells, run_conditions
from tools.tables.markdown import Table
from workshop.run_folder.plural import counted

NOT_MEASURED = "not measured"
NOT_RECORDED = "not recorded"  # by runs that are older than the figure
_SHORT = 0.5  # a run with less than this share of a similar one's examples is a short test run
_CLEAR = (NOT_MEASURED, "no GPU", "one run only")  # words that need no note
_MOST_SOURCES = 8  # more run folders than this are counted, not listed


def choose(runs: Sequence[Run], where: Where) -> tuple[list[Run], list[str]]:
    """For each REPEAT the newest completed run that matches, else the newest; a short test run only without others.

    Args:
        runs: oldest first.

    Returns:
        A run for each REPEAT; notes on newer ones that are not chosen.

    Raises:
        UnavailableError: no run matches.
    """
    found: dict[int, list[Run]] = {}
    for run in filter(lambda run: run.matches(where), runs):
        found.setdefault(run.repeat, []).append(run)
    if not found:
        raise UnavailableError(NOT_MEASURED)
    chosen, notes = [], []
    for _, same in sorted(found.items()):
        candidates = [run for run in same if run.state == "completed"] or same
        chosen.append(next(run for run in reversed(candidates) if not _is_short(run, candidates)))
        if (newest := same[-1]) is not chosen[-1]:
            why = newest.outcome
            if newest.state == "completed":
                why = f"a short test run: it trained on {counted(newest.examples_asked, 'example')}"
            notes.append(f"{newest.folder}: newer, but {why}; {chosen[-1].folder} is shown")
    return chosen, notes


def _is_short(run: Run, candidates: Sequence[Run]) -> bool:
    """Whether a similar one among the candidates was to process more than twice as many examples."""
    if (asked := run.examples_asked) is None:
        return False
    longer = (one for one in candidates if max(0, asked) < _SHORT * (one.examples_asked or 0))
    return any(_shape(one) == _shape(run) for one in longer)


def _shape(run: Run) -> tuple:
    """What runs of one length share; for tiny runs also the data: the quickstart trains on more than tiny.env."""
    data = run.settings.get("dataset") if run.tiny else None
    return data, run.record.exercise, run.record.config, run.model, run.world_size, run.record.nodes


@dataclass(frozen=True)
class Cell:
    """Attributes: text: as printed; value: the number, None for a word; figure: its definition;
    runs: its sources, or the runs that lack the figure.
    """

    text: str
    value: float | None
    figure: Figure
    runs: tuple[Run, ...] = ()


@dataclass
class FilledTable:
    """Attributes: cells: one entry per row, None where the README's own text stays; runs: used, in order; notes."""

    table: Table
    cells: list[list[Cell | None]]
    runs: list[Run] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def markdown(self, recorded_only: bool = False) -> str:
        """The table as in the README; a table about tiny runs has only rows with runs.

        `recorded_only` leaves out rows and columns that say nothing but that no run recorded the figure; not of a
        generated table, which would lose them.
        """
        rows = [
            [text if cell is None else cell.text.replace("|", "\\|") for text, cell in zip(row, cells, strict=True)]
            for row, cells in zip(self.table.rows, self.cells, strict=True)
            if not self.table.tiny or any(cell and cell.text != NOT_MEASURED for cell in cells)
        ]
        if not recorded_only or self.table.generated:
            return markdown.render(self.table, rows)
        labels = self.table.label_columns
        rows = [row for row in rows if not _unrecorded(row[labels:])]
        kept = [at for at in range(len(self.table.header)) if at < labels or not _unrecorded([row[at] for row in rows])]
        header = [self.table.header[at] for at in kept]
        shown = replace(self.table, header=header, separator=self.table.separator_of(kept))
        return markdown.render(shown, [[row[at] for at in kept] for row in rows])

    def sources(self) -> str:
        """The line under the table: the run folders its figures are from."""
        if len(self.runs) > _MOST_SOURCES:
            return shared_sources([self])
        folders = []
        for run in self.runs:
            remarks = ["nodes emulated on one host"] if run.record.emulated_nodes else []
            if self.table.tiny:  # the table's title says other numbers
                remarks += [f"{run.world_size} processes"] if (run.world_size or 1) > 1 else []
                remarks.append(counted(run.record.train_examples or 0, "example"))
            folders.append(f"`{run.folder}`" + (f" ({', '.join(remarks)})" if remarks else ""))
        return f"From {', '.join(folders)}" if folders else "From no run"


def shared_sources(tables: Sequence[FilledTable]) -> str:
    """One line for all tables: their only run, or how many runs in which folders."""
    runs = list({run.folder: run for table in tables for run in table.runs}.values())
    if len(runs) == 1:
        return next(table for table in tables if table.runs).sources()
    places = dict.fromkeys(f"`{run.folder.parents[1]}`" for run in runs)
    emulated = sum(bool(run.record.emulated_nodes) for run in runs)
    remark = f" (of {emulated} the nodes are emulated on one host)" if emulated else ""
    return f"From {len(runs)} runs in {', '.join(places)}{remark}"


def _unrecorded(texts: list[str]) -> bool:
    return NOT_RECORDED in texts and {*texts} <= {NOT_RECORDED, NOT_MEASURED}


def fill(table: Table, runs: list[Run]) -> FilledTable:
    """The table with every blank cell filled from `runs` (of any exercise, oldest first)."""
    candidates = [run for run in runs if run.record.exercise in table.exercises]
    choices: dict[str, tuple[list[Run], list[str]]] = {}  # many cells are about the same runs
    filled = FilledTable(table, [])
    for row in blank_cells(table):
        filled.cells.append([_cell(filled, candidates, choices, cell) if cell else None for cell in row])
    filled.runs.sort(key=lambda run: run.start)
    places = dict.fromkeys(f"{run.folder.parent.parent} ({run.owner})" for run in candidates)
    if len(places) > 1:
        several = f"runs from several places: {', '.join(places)}"
        filled.notes.append(f"{several}; each cell shows the newest, --owner and --logs choose")
    filled.notes = list(dict.fromkeys(filled.notes))
    return filled


def _cell(filled: FilledTable, candidates: list[Run], choices: dict[str, tuple], cell: BlankCell) -> Cell:
    """A filled cell: its figure, or why there is none."""
    used: list[Run] = []

    def select(conditions: Where) -> list[Run]:
        key = str(conditions)
        if key not in choices:
            choices[key] = choose(candidates, run_conditions(conditions))
        used.extend(choices[key][0])
        filled.notes += choices[key][1]
        return completed(choices[key][0], conditions)

    value, text = None, ""
    try:
        value = value_of(cell.figure, select, cell.where, cell.std)
        text = cell.figure.written(value, cell.unit_named)
    except UnavailableError as missing:
        text = str(missing)
        if used and used[-1].state == "completed" and text not in _CLEAR and cell.figure.kind is not str:
            filled.notes.append(f"{used[-1].folder}: {text}")
    except InputError as error:
        text = "unreadable log"
        filled.notes.append(str(error))
    for run in used:
        if run.state != "completed":
            filled.notes.append(f"{run.folder}: {run.state.upper()}{': ' + run.reason if run.reason else ''}")
    filled.runs += [run for run in used if run not in filled.runs]
    return Cell(text, value, cell.figure, tuple({run.folder: run for run in used}.values()))


def value_of(figure: Figure, select: Select, where: Where, std: bool = False) -> float | bool:
    """A cell's figure; `std`: the standard deviation over runs that differ in REPEAT only, not their median.

    Raises:
        UnavailableError: there is none; its text is what the cell shows.
        InputError: a log is damaged.
    """
    if std:
        values = [value_of(figure, lambda _, run=run: [run], where) for run in select(where)]
        if len(values) == 1:
            raise UnavailableError("one run only")
        return stdev(values)
    if figure.name in COMPARISONS:
        return COMPARISONS[figure.name](select, where)
    return median_of(select(where), figure.name)


def completed(runs: list[Run], conditions: Where) -> list[Run]:
    """The runs that completed in the precision asked for; raises UnavailableError if there is none."""
    found = [run for run in runs if run.state == "completed"]
    if not found:
        raise UnavailableError(runs[-1].outcome)
    for run in found:
        if run.record.precision != conditions.get("precision", run.record.precision):
            raise UnavailableError(f"ran in {run.record.precision}")
    return found


def left_out_lines(tables: Sequence[Table], runs: Sequence[Run], command: str) -> list[str]:
    """Runs that no table shows, counted by reason; `command` (with --tiny for tiny runs) shows them."""
    commands = {"tiny": f"; `{command} --tiny`", "not tiny": f"; `{command}`"}
    exercises = {table.path.parent.resolve().name for table in tables}
    # Some tables are about several exercises.
    own = [run for run in runs if run.record.exercise in exercises] or runs
    cells = (cell for table in tables for row in blank_cells(table) for cell in row if cell)
    conditions = [*{str(where): where for where in (run_conditions(cell.where) for cell in cells)}.values()]
    counts = Counter(reason for run in own if (reason := _why_in_no_cell(run, conditions)))
    return [f"- {counted(count, 'run')}: {reason}{commands.get(reason, '')}" for reason, count in counts.items()]


def _why_in_no_cell(run: Run, conditions: Sequence[Where]) -> str:
    """The conditions of the nearest cell that the run does not meet; "" for a run that a cell shows."""
    if conditions and all(where["tiny"] != run.tiny for where in conditions):
        return "tiny" if run.tiny else "not tiny"
    differing = ([one for one in where.items() if not run.matches(dict([one]))] for where in conditions)
    nearest = min(differing, key=len, default=[])
    return "; ".join(_difference(key, run.fact(key), wanted) for key, wanted in nearest)


def _difference(key: str, found: object, wanted: object) -> str:
    """Such as "model bloom-1b1, not bloom-560m" or "profiled"."""
    name = {"world_size": "processes"}.get(key, key.replace("_", " "))
    if isinstance(wanted, bool):
        return f"not {name}" if wanted else name
    here, there = ("none" if one is None else f"{one:,}" if isinstance(one, int) else one for one in (found, wanted))
    return f"{name} {here}" + ("" if isinstance(wanted, NoneOf) else f", not {there}")
