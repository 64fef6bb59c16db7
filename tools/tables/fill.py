"""Filling a README's blank tables from runs: which run a cell is about, its figure, and what it says without one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from os.path import commonpath
from pathlib import Path
from statistics import stdev

from tools.errors import InputError, UnavailableError
from tools.logs.run import Run
from tools.tables import markdown
from tools.tables.choice import NOT_MEASURED, Choice, choose, note_on_owners
from tools.tables.markdown import Table
from tools.tables.metrics import METRICS, Metric, Select, Where
from tools.tables.registry import SIZES, TABLES, Meaning, TableDefaults, meaning, run_conditions

_SAID = (NOT_MEASURED, "no GPU", "one run only")  # by the cell itself, which needs no note
_MOST_SOURCES = 8  # more run folders than this are counted, not listed
# How labels write a metric's unit where it is not simply in parentheses.
_UNITS_IN_LABELS = {
    "s": ("(sec)", "(s)", "Seconds "),
    "samples/s": ("amples/s",),
    "steps/s": ("teps/s",),
    "tokens/s": ("okens/s",),
}


@dataclass(frozen=True)
class Cell:
    """Attributes: text: as printed; value: the figure, or None where the text is a word; metric: what it measures;
    runs: those it is from, or that would have given it.
    """

    text: str
    value: float | None
    metric: Metric
    runs: tuple[Run, ...] = ()

    @property
    def answered(self) -> bool:
        """Whether it shows what it asks for: a figure, or of a metric that is a word its word."""
        return self.value is not None or (
            self.metric.kind is str and self.text not in (*_SAID, self.metric.missing, "unreadable log")
        )


@dataclass
class FilledTable:
    """Attributes: cells: one entry per row, None where the README's own text stays; runs: used, in order; notes."""

    table: Table
    cells: list[list[Cell | None]]
    runs: list[Run] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def markdown(self) -> str:
        """The table as in the README; a table about tiny runs has only rows with runs."""
        rows = [
            [text if cell is None else cell.text.replace("|", "\\|") for text, cell in zip(row, cells, strict=True)]
            for row, cells in zip(self.table.rows, self.cells, strict=True)
            if not self.table.tiny or any(cell and cell.text != NOT_MEASURED for cell in cells)
        ]
        return markdown.render(self.table, rows)

    def sources(self) -> str:
        """The line under the table: the run folders its figures are from."""
        if len(self.runs) > _MOST_SOURCES:
            replays = " (replays, not measured)" if any(run.is_replay for run in self.runs) else ""
            place = commonpath(_comparable([run.folder for run in self.runs]))
            return f"From {len(self.runs)} runs in `{place}`{replays}"
        folders = [f"`{run.folder}`{self._remark(run)}" for run in self.runs]
        return f"From {', '.join(folders)}" if folders else "From no run"

    def _remark(self, run: Run) -> str:
        count = run.facts["world_size"] or 1
        remarks = ["replay, not measured"] if run.is_replay else []
        remarks += ["nodes emulated on one host"] if run.record.get("emulated_nodes") else []
        if self.table.tiny and count > 1:  # the table's title may say another number
            remarks.append(f"{count} processes")
        return f" ({', '.join(remarks)})" if remarks else ""


def _comparable(folders: list[Path]) -> list[Path]:
    """The folders as given, or all absolute where only some are."""
    return folders if len({folder.is_absolute() for folder in folders}) == 1 else [f.absolute() for f in folders]


def definitions(readme: Path) -> list[Table]:
    """The blank tables of a README."""
    return [table for table in markdown.read_tables(readme) if table.blank]


def defaults_of(table: Table) -> TableDefaults:
    """Raises InputError if the registry does not know the table's number."""
    if table.number not in TABLES:
        known = ", ".join(TABLES)
        raise InputError(f"{table.path}:{table.header_line}: Table {table.number} is unknown; known: {known}")
    return TABLES[table.number]


def exercises_of(tables: Iterable[Table]) -> list[str]:
    """The exercises whose runs fill the tables, each once."""
    return list(dict.fromkeys(name for table in tables for name in defaults_of(table).exercises))


@dataclass(frozen=True)
class Plan:
    """What a blank cell is about.

    Attributes:
        metric, where: what it shows, and conditions on the run.
        unit_named: a label names the metric's unit.
        std: of several repeats the standard deviation, not the median.
    """

    metric: Metric
    where: Where
    unit_named: bool
    std: bool


def plan(table: Table) -> list[list[Plan | None]]:
    """What every blank cell is about.

    Raises:
        InputError: a label means nothing, or a cell's labels give no metric or two; names file, line and label.
    """
    # Runs on a rung of the speed ladder are other chapters' runs made faster: only tables that ask for them see them.
    # A profiler and DeepSpeed's timers make steps slower: such runs are in no table that does not ask for them.
    where = {"rung": None, "profiled": False, "timed": False} | defaults_of(table).where
    if table.tiny:  # of several processes as many as a laptop has
        several = {"world_size"} if where.get("world_size") != 1 else set()
        where = {key: wanted for key, wanted in where.items() if key not in {*SIZES, *several}}
    where["tiny"] = table.tiny
    labels = table.label_columns
    columns = [_meaning(table, label, table.header_line) for label in table.header[labels:]]
    planned = []
    for row, line in zip(table.rows, table.lines, strict=True):
        meanings = [_meaning(table, label, line) for label in row[:labels]]
        cells: list[Plan | None] = [None] * labels
        for position, (text, column) in enumerate(zip(row[labels:], columns, strict=True), labels):
            if text:
                cells.append(None)
                continue
            metrics = {m.metric for m in (*meanings, column) if m.metric}
            names = [*row[:labels], table.header[position]]
            if len(metrics) != 1:
                found = "no metric" if not metrics else f"two metrics ({', '.join(sorted(metrics))})"
                raise InputError(f"{table.path}:{line}: the labels {' / '.join(map(repr, names))} give {found}")
            conditions = dict(where)
            for part in (*meanings, column):
                conditions |= part.where
            metric = METRICS[metrics.pop()]
            units = _UNITS_IN_LABELS.get(metric.unit, (f"({metric.unit})", f"({metric.unit},"))
            unit_named = any(unit in label for unit in units for label in names)
            std = any(part.std for part in (*meanings, column))
            cells.append(Plan(metric, conditions, unit_named, std))
        planned.append(cells)
    return planned


def _meaning(table: Table, label: str, line: int) -> Meaning:
    found = meaning(label)
    if found is None:
        raise InputError(
            f"{table.path}:{line}: Table {table.number}: nothing fills the label {label!r}; see tables/registry.py"
        )
    return found


def fill(table: Table, runs: list[Run], wanted: Callable[[Plan], bool] = lambda cell: True) -> FilledTable:
    """The table with every blank cell that is wanted filled from `runs` (of any exercise, oldest first)."""
    exercises = defaults_of(table).exercises
    candidates = [run for run in runs if run.record.get("exercise") in exercises]
    choices: dict[str, Choice] = {}  # many cells are about the same runs

    def chosen(conditions: Where) -> Choice:
        key = str(conditions)
        if key not in choices:
            choices[key] = choose(candidates, run_conditions(conditions))
        return choices[key]

    filled = FilledTable(table, [])
    for row in plan(table):
        filled.cells.append([_fill_cell(filled, chosen, cell) if cell and wanted(cell) else None for cell in row])
    filled.runs.sort(key=lambda run: run.start)
    if note := note_on_owners([run for choice in choices.values() for run in choice.equal]):
        _note(filled, note)
    return filled


def _fill_cell(filled: FilledTable, chosen: Callable[[Where], Choice], cell: Plan) -> Cell:
    """The figure of the runs that a cell is about, or the words for why there is none."""
    used: list[Run] = []

    def select(conditions: Where) -> list[Run]:
        choice = chosen(conditions)
        used.extend(choice.runs)
        for note in choice.notes:
            _note(filled, note)
        return _completed(choice.runs, conditions)

    value, text = None, ""
    try:
        value = _figure(cell, select)
        text = written(cell.metric, value, cell.unit_named)
    except UnavailableError as missing:
        text = str(missing)
        if used and used[-1].state == "completed" and text not in _SAID and cell.metric.kind is not str:
            _note(filled, f"{used[-1].folder}: {text}")
    except InputError as error:
        text = "unreadable log"
        _note(filled, str(error))
    for run in used:
        if run.state != "completed":
            _note(filled, f"{run.folder}: {run.state.upper()}{': ' + run.reason if run.reason else ''}")
    filled.runs += [run for run in used if run not in filled.runs]
    return Cell(text, value, cell.metric, tuple({run.folder: run for run in used}.values()))


def _figure(cell: Plan, select: Select) -> float | bool:
    """The cell's figure; for runs that differ in REPEAT only, their median or standard deviation."""
    if not cell.std:
        return cell.metric.value(select, cell.where)
    values = [cell.metric.value(lambda _, run=run: [run], cell.where) for run in select(cell.where)]
    if len(values) == 1:
        raise UnavailableError("one run only")
    return stdev(values)


def _completed(runs: list[Run], conditions: Where) -> list[Run]:
    """The runs that completed in the precision asked for; raises UnavailableError if there is none."""
    completed = [run for run in runs if run.state == "completed"]
    if not completed:
        raise UnavailableError(runs[-1].outcome)
    for run in completed:
        ran = run.record.get("precision")
        if "precision" in conditions and ran != conditions["precision"]:
            raise UnavailableError(f"ran in {ran}")
    return completed


def figure_of(run: Run, metric: Metric) -> str:
    """One run's figure as printed, without its unit, or the words for why there is none."""

    def select(conditions: Where) -> list[Run]:
        if conditions:
            raise UnavailableError("compares runs")
        if run.state != "completed":
            raise UnavailableError(run.outcome)
        return [run]

    try:
        return written(metric, metric.value(select, {}), unit_named=True)
    except UnavailableError as missing:
        return str(missing)
    except InputError:
        return "unreadable log"


def _note(filled: FilledTable, text: str) -> None:
    if text not in filled.notes:
        filled.notes.append(text)


def written(metric: Metric, value: float | bool | None, unit_named: bool) -> str:
    """A figure as printed: thousands separators, the metric's decimals, its unit unless a label names it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,.{metric.decimals}f}{'' if unit_named or not metric.unit else ' ' + metric.unit}"
