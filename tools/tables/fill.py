"""Fills blank tables: chooses the runs of each cell and writes their figure, or why there is none."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tools.errors import InputError, UnavailableError
from tools.logs.figures import A_WORD, Figure, over_repeats
from tools.logs.run import NoneOf, Run, Where, meets
from tools.tables import markdown
from tools.tables.comparisons import Comparison
from tools.tables.markdown import Grid, Place
from tools.tables.table import blank_cells
from workshop.record.printable import counted

NOT_MEASURED = "not measured"
_SHORT = 0.5  # a run with less than this share of a similar one's examples is a short test run
_CLEAR = (NOT_MEASURED, "no GPU", "one run only")  # words that need no note


@dataclass(frozen=True)
class Cell:
    """Attributes: text: as printed; value: the number, None for a word; figure: its definition;
    runs: its sources, or the runs that lack the figure.
    """

    text: str
    value: float | None
    figure: Figure
    runs: tuple[Run, ...] = ()


@dataclass(frozen=True)
class FilledTable:
    """Attributes: cells: by their places, none where the README's own text stays; notes: on runs and
    logs; tolerance_percent: what a figure that is read from it may differ at least; source: a command, if not runs.
    """

    table: Grid
    cells: dict[Place, Cell]
    notes: list[str]
    tolerance_percent: float = 0
    source: str = ""

    @property
    def runs(self) -> list[Run]:
        """Those that its cells are about, each once, oldest first."""
        return sorted(
            dict.fromkeys(run for cell in self.cells.values() for run in cell.runs), key=lambda run: run.start
        )

    def markdown(self) -> str:
        """The table as in the README; a table about tiny runs has only rows with runs, none of them twice."""
        table = self.table.with_texts({place: cell.text.replace("|", "\\|") for place, cell in self.cells.items()})
        if table.tiny:
            rows = {}
            for row in table.rows:
                cells = [cell for place, cell in self.cells.items() if list(place[:-1]) == row[: table.label_columns]]
                if any(cell.text != NOT_MEASURED for cell in cells):  # rows of other sizes have the same runs
                    rows.setdefault(tuple((cell.figure.title, cell.runs) for cell in cells), row)
            table = replace(table, rows=list(rows.values()))
        return markdown.render(table)


def sources(tables: Sequence[FilledTable], most: int = 8) -> str:
    """The line under tables: the run folders their figures are from; of more than `most`, how many in which folders."""
    runs = list(dict.fromkeys(run for table in tables for run in table.runs))
    if len(runs) > most:
        places = dict.fromkeys(f"`{run.folder.parents[1]}`" for run in runs)
        emulated = sum(bool(run.record.emulated_nodes) for run in runs)
        remark = f" (of {emulated} the nodes are emulated on one host)" if emulated else ""
        return f"From {len(runs)} runs in {', '.join(places)}{remark}"
    folders = []
    for run in runs:
        remarks = ["nodes emulated on one host"] if run.record.emulated_nodes else []
        if tables[0].table.tiny:  # the table's title says other numbers
            remarks += [f"{run.world_size} processes"] if (run.world_size or 1) > 1 else []
            remarks.append(counted(run.record.train_examples or 0, "example"))
        folders.append(f"`{run.folder}`" + (f" ({', '.join(remarks)})" if remarks else ""))
    return f"From {', '.join(folders) or 'no run'}"


@dataclass
class Selection:
    """The runs of a table's cells. Called with a cell's conditions, it gives a completed run for each REPEAT.

    Attributes:
        runs: all that the table may show, oldest first.
        used: those of the present cell.
        notes: on runs that are not shown.
        chosen: by conditions: many cells are about the same runs.
    """

    runs: Sequence[Run]
    used: list[Run] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    chosen: dict[str, list[Run]] = field(default_factory=dict)

    def __call__(self, where: Where) -> list[Run]:
        """Raises UnavailableError: no run matches, completed, or ran in the precision asked for."""
        if (key := str(where)) not in self.chosen:
            repeats: dict[int, list[Run]] = {}
            for run in self.runs:
                if run.matches(where):
                    repeats.setdefault(run.repeat, []).append(run)
            self.chosen[key] = [self._newest(same) for _, same in sorted(repeats.items())]
        chosen = self.chosen[key]
        self.used += chosen
        if not chosen:
            raise UnavailableError(NOT_MEASURED)
        completed = [run for run in chosen if run.state == "completed"]
        if not completed:
            raise UnavailableError(chosen[-1].outcome)
        for run in completed:
            if run.record.precision != where.get("precision", run.record.precision):
                raise UnavailableError(f"ran in {run.record.precision}")
        return completed

    def _newest(self, same: Sequence[Run]) -> Run:
        """The newest completed run of equal ones, else the newest; a short test run only without others."""
        candidates = [run for run in same if run.state == "completed"] or same
        chosen = next(run for run in reversed(candidates) if not _is_short(run, candidates))
        if (newest := same[-1]) is not chosen:
            why = newest.outcome
            if newest.state == "completed":
                why = f"a short test run: it trained on {counted(newest.examples_asked, 'example')}"
            self.notes.append(f"{newest.folder}: newer, but {why}; {chosen.folder} is shown")
        return chosen


def _is_short(run: Run, candidates: Sequence[Run]) -> bool:
    """Whether a similar one among the candidates was to process more than twice as many examples."""
    if (asked := run.examples_asked) is None:
        return False
    longer = (other for other in candidates if max(0, asked) < _SHORT * (other.examples_asked or 0))
    return any(_shape(other) == _shape(run) for other in longer)


def _shape(run: Run) -> tuple:
    """What runs of one length share; for tiny runs also the data: the quickstart trains on more than tiny.env."""
    data = run.settings.get("dataset") if run.tiny else None
    return data, run.record.exercise, run.record.config, run.model, run.world_size, run.record.nodes


def fill(table: Grid, runs: list[Run]) -> FilledTable:
    """The table with every blank cell filled from `runs` (of any exercise, oldest first)."""
    candidates = [run for run in runs if run.record.exercise in table.definition.exercises]
    select = Selection(candidates)
    cells = {place: _cell(select, *asked) for place, asked in blank_cells(table).items()}
    places = dict.fromkeys(f"{run.folder.parent.parent} ({run.owner})" for run in candidates)
    if len(places) > 1:
        several = f"runs from several places: {', '.join(places)}"
        select.notes.append(f"{several}; each cell shows the newest, --owner and --logs choose")
    return FilledTable(table, cells, list(dict.fromkeys(select.notes)))


def _cell(select: Selection, figure: Figure, where: Where) -> Cell:
    """A filled cell: its figure, or why there is none."""
    value, select.used = None, []
    try:
        if isinstance(figure, Comparison):
            value = figure.of(select, where)
        else:
            value = over_repeats(select(where), figure.name, figure.std)
        text = figure.written(value)
    except UnavailableError as missing:
        text, used = str(missing), select.used
        if used and used[-1].state == "completed" and text not in _CLEAR and figure.decimals != A_WORD:
            select.notes.append(f"{used[-1].folder}: {text}")
    except InputError as error:
        text = "unreadable log"
        select.notes.append(str(error))
    for run in select.used:
        if run.state != "completed":
            select.notes.append(f"{run.folder}: {run.state.upper()}{': ' + run.reason if run.reason else ''}")
    return Cell(text, value, figure, tuple(dict.fromkeys(select.used)))


def left_out_lines(tables: Sequence[Grid], runs: Sequence[Run], command: str) -> list[str]:
    """Runs that no table shows, counted by reason; `command` (with --tiny for tiny runs) shows them."""
    commands = {"tiny": f"; `{command} --tiny`", "not tiny": f"; `{command}`"}
    here = {table.path.parent.resolve().name for table in tables}
    about = {name for table in tables for name in table.definition.exercises}
    candidates = [run for run in runs if run.record.exercise in here]
    candidates = candidates or [run for run in runs if run.record.exercise in about]
    wheres = [where for table in tables for _, where in blank_cells(table).values()]
    conditions = [*{str(where): where for where in wheres}.values()]
    names = {name for where in conditions for name in where}
    facts = ({name: run.fact(name) for name in names} for run in candidates)
    counts = Counter(filter(None, (_why_in_no_cell(of_run, conditions) for of_run in facts)))
    return [f"{counted(count, 'run')}: {reason}{commands.get(reason, '')}" for reason, count in counts.items()]


def _why_in_no_cell(facts: dict[str, Any], conditions: Sequence[Where]) -> str:
    """The conditions of the nearest cell that a run does not meet; "" for a run that a cell shows."""
    if conditions and all(where["tiny"] != facts["tiny"] for where in conditions):
        return "tiny" if facts["tiny"] else "not tiny"
    differing = (
        [(key, wanted) for key, wanted in where.items() if not meets(facts[key], wanted)] for where in conditions
    )
    nearest = min(differing, key=len, default=[])
    return "; ".join(_difference(key, facts[key], wanted) for key, wanted in nearest)


def _difference(key: str, fact: object, wanted: object) -> str:
    """Such as "model bloom-1b1, not bloom-560m" or "profiled"."""
    name = {"world_size": "processes"}.get(key, key.replace("_", " "))
    if isinstance(wanted, bool):
        return f"not {name}" if wanted else name
    here, asked = (
        "none" if value is None else f"{value:,}" if isinstance(value, int) else value for value in (fact, wanted)
    )
    return f"{name} {here}" + ("" if isinstance(wanted, NoneOf) else f", not {asked}")
