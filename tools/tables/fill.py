"""Filling blank tables from runs: which run a cell is about, its figure, and what it says without one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from os.path import commonpath
from statistics import stdev

from tools.errors import InputError, UnavailableError
from tools.logs.run import Not, Run
from tools.tables import markdown
from tools.tables.definitions import Plan, defaults_of, plan, run_conditions
from tools.tables.markdown import Table
from tools.tables.metrics import Metric, Select, Where
from workshop.run_folder.plural import counted

NOT_MEASURED = "not measured"
NOT_RECORDED = "not recorded"  # by runs that are older than the figure
_TRY = 0.5  # a run on less than this part of the examples of one of the same shape only tried something
_SAID = (NOT_MEASURED, "no GPU", "one run only")  # by the cell itself, which needs no note
_MOST_SOURCES = 8  # more run folders than this are counted, not listed


def choose(runs: Sequence[Run], where: Where) -> tuple[list[Run], list[str]]:
    """For each REPEAT the newest completed of the matching runs, else the newest of them; a short try only if alone.

    Args:
        runs: oldest first.

    Returns:
        A run for each REPEAT; notes on newer ones that are not chosen.

    Raises:
        UnavailableError: no run matches.
    """
    found: dict[int, list[Run]] = {}
    for run in filter(lambda run: run.matches(where), runs):
        found.setdefault(run.facts["repeat"], []).append(run)
    if not found:
        raise UnavailableError(NOT_MEASURED)
    chosen, notes = [], []
    for repeat in sorted(found):
        chosen.append(_newest(found[repeat]))
        if (newest := found[repeat][-1]) is not chosen[-1]:
            why = newest.outcome
            if newest.state == "completed":
                why = f"a try: it trained on {counted(newest.examples_asked, 'example')}"
            notes.append(f"{newest.folder}: newer, but {why}; {chosen[-1].folder} is shown")
    return chosen, notes


def _newest(runs: list[Run]) -> Run:
    """The newest that stands for the real run: a completed one where any is, and no short try."""
    candidates = [run for run in runs if run.state == "completed"] or runs
    most: dict[tuple, int] = {}
    for run in candidates:
        most[_shape(run)] = max(most.get(_shape(run), 0), run.examples_asked or 0)

    def is_whole(run: Run) -> bool:
        return run.examples_asked is None or max(0, run.examples_asked) >= most[_shape(run)] * _TRY

    return next(filter(is_whole, reversed(candidates)))


def _shape(run: Run) -> tuple:
    """What a try and the real run have in common; of tiny runs also the data: the quickstart's are no real run's."""
    data = (run.record.get("settings") or {}).get("dataset") if run.facts["tiny"] else None
    return data, *(run.facts[name] for name in ("exercise", "config", "model", "world_size", "nodes"))


@dataclass(frozen=True)
class Cell:
    """Attributes: text: as printed; value: the figure, or None where the text is a word; metric: what it measures;
    runs: those it is from, or that would have given it.
    """

    text: str
    value: float | None
    metric: Metric
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

        `recorded_only` leaves out rows and columns that say nothing but that no run recorded the figure.
        """
        rows = [
            [text if cell is None else cell.text.replace("|", "\\|") for text, cell in zip(row, cells, strict=True)]
            for row, cells in zip(self.table.rows, self.cells, strict=True)
            if not self.table.tiny or any(cell and cell.text != NOT_MEASURED for cell in cells)
        ]
        if not recorded_only:
            return markdown.render(self.table, rows)
        labels = self.table.label_columns
        rows = [row for row in rows if not _unrecorded(row[labels:])]
        kept = [at for at in range(len(self.table.header)) if at < labels or not _unrecorded([row[at] for row in rows])]
        header = [self.table.header[at] for at in kept]
        shown = replace(self.table, header=header, separator="|" + "---|" * len(kept))
        return markdown.render(shown, [[row[at] for at in kept] for row in rows])

    def sources(self) -> str:
        """The line under the table: the run folders its figures are from."""
        if len(self.runs) > _MOST_SOURCES:
            replays = " (replays, not measured)" if any(run.is_replay for run in self.runs) else ""
            absolute = any(run.folder.is_absolute() for run in self.runs)
            place = commonpath([run.folder.absolute() if absolute else run.folder for run in self.runs])
            return f"From {len(self.runs)} runs in `{place}`{replays}"
        folders = [f"`{run.folder}`{self._remark(run)}" for run in self.runs]
        return f"From {', '.join(folders)}" if folders else "From no run"

    def _remark(self, run: Run) -> str:
        count = run.facts["world_size"] or 1
        remarks = ["replay, not measured"] if run.is_replay else []
        remarks += ["nodes emulated on one host"] if run.record.get("emulated_nodes") else []
        if self.table.tiny:
            remarks += [f"{count} processes"] if count > 1 else []
            remarks.append(counted(run.record.get("train_examples") or 0, "example"))
        return f" ({', '.join(remarks)})" if remarks else ""


def _unrecorded(texts: list[str]) -> bool:
    return NOT_RECORDED in texts and {*texts} <= {NOT_RECORDED, NOT_MEASURED}


def fill(table: Table, runs: list[Run], wanted: Callable[[Plan], bool] = lambda cell: True) -> FilledTable:
    """The table with every blank cell that is wanted filled from `runs` (of any exercise, oldest first)."""
    exercises = defaults_of(table).exercises
    candidates = [run for run in runs if run.record.get("exercise") in exercises]
    choices: dict[str, tuple[list[Run], list[str]]] = {}  # many cells are about the same runs

    def chosen(conditions: Where) -> tuple[list[Run], list[str]]:
        key = str(conditions)
        if key not in choices:
            choices[key] = choose(candidates, run_conditions(conditions))
        return choices[key]

    filled = FilledTable(table, [])
    for row in plan(table):
        filled.cells.append([_fill_cell(filled, chosen, cell) if cell and wanted(cell) else None for cell in row])
    filled.runs.sort(key=lambda run: run.start)
    places = dict.fromkeys(f"{run.folder.parent.parent} ({run.owner})" for run in candidates)
    if len(places) > 1:
        several = f"runs from several places: {', '.join(places)}"
        filled.notes.append(f"{several}; each cell shows the newest, --owner and --logs choose")
    filled.notes = list(dict.fromkeys(filled.notes))
    return filled


def _fill_cell(filled: FilledTable, chosen: Callable[[Where], tuple[list[Run], list[str]]], cell: Plan) -> Cell:
    """The figure of the runs that a cell is about, or the words for why there is none."""
    used: list[Run] = []

    def select(conditions: Where) -> list[Run]:
        runs, notes = chosen(conditions)
        used.extend(runs)
        filled.notes += notes
        return completed(runs, conditions)

    value, text = None, ""
    try:
        value = _figure(cell, select)
        text = written(cell.metric, value, cell.unit_named)
    except UnavailableError as missing:
        text = str(missing)
        if used and used[-1].state == "completed" and text not in _SAID and cell.metric.kind is not str:
            filled.notes.append(f"{used[-1].folder}: {text}")
    except InputError as error:
        text = "unreadable log"
        filled.notes.append(str(error))
    for run in used:
        if run.state != "completed":
            filled.notes.append(f"{run.folder}: {run.state.upper()}{': ' + run.reason if run.reason else ''}")
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


def completed(runs: list[Run], conditions: Where) -> list[Run]:
    """The runs that completed in the precision asked for; raises UnavailableError if there is none."""
    found = [run for run in runs if run.state == "completed"]
    if not found:
        raise UnavailableError(runs[-1].outcome)
    for run in found:
        ran = run.record.get("precision")
        if "precision" in conditions and ran != conditions["precision"]:
            raise UnavailableError(f"ran in {ran}")
    return found


def figure_of(run: Run, metric: Metric) -> str:
    """One run's figure as printed, without its unit, or the words for why there is none."""

    def select(conditions: Where) -> list[Run]:
        if conditions:
            raise UnavailableError("compares runs")
        return completed([run], {})

    try:
        return written(metric, metric.value(select, {}), unit_named=True)
    except KeyError:  # a condition that only a cell has
        return "compares runs"
    except UnavailableError as missing:
        return str(missing)
    except InputError:
        return "unreadable log"


def written(metric: Metric, value: float | bool | None, unit_named: bool) -> str:
    """A figure as printed: thousands separators, the metric's decimals, its unit unless a label names it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,.{metric.decimals}f}{'' if unit_named or not metric.unit else ' ' + metric.unit}"


def left_out_lines(tables: Sequence[Table], runs: Sequence[Run], command: str) -> list[str]:
    """Which runs no table is about and why, as a list; `command`, with --tiny where they are tiny, shows them."""
    commands = {"tiny": f"; `{command} --tiny`", "not tiny": f"; `{command}`"}
    exercises = {table.path.parent.resolve().name for table in tables}
    # Some tables are about several exercises.
    own = [run for run in runs if run.record["exercise"] in exercises] or runs
    counts = Counter(reason for reason in why_in_no_table(tables, own) if reason)
    return [f"- {counted(count, 'run')}: {reason}{commands.get(reason, '')}" for reason, count in counts.items()]


def why_in_no_table(tables: Sequence[Table], runs: Sequence[Run]) -> list[str]:
    """For each run what the cell nearest to it asks for otherwise; "" where a cell asks for the run."""
    cells = (cell for table in tables for row in plan(table) for cell in row if cell)
    conditions = [*{str(where): where for where in (run_conditions(cell.where) for cell in cells)}.values()]
    return [_why_in_no_cell(run, conditions) for run in runs]


def _why_in_no_cell(run: Run, conditions: Sequence[Where]) -> str:
    tiny = run.facts["tiny"]
    if conditions and all(where["tiny"] != tiny for where in conditions):
        return "tiny" if tiny else "not tiny"
    differing = ([one for one in where.items() if not run.matches(dict([one]))] for where in conditions)
    nearest = min(differing, key=len, default=[])
    return "; ".join(_difference(key, run.facts[key], wanted) for key, wanted in nearest)


def _difference(key: str, found: object, wanted: object) -> str:
    """Such as "model bloom-1b1, not bloom-560m" or "profiled"."""
    name = {"world_size": "processes"}.get(key, key.replace("_", " "))
    if isinstance(wanted, bool):
        return f"not {name}" if wanted else name
    here, there = ("none" if one is None else f"{one:,}" if isinstance(one, int) else one for one in (found, wanted))
    return f"{name} {here}" + ("" if isinstance(wanted, Not) else f", not {there}")
