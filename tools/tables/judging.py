"""What `check` compares and says: what a participant wrote into a cell, how much equal runs differ, the verdicts."""

import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from itertools import combinations

from run_folder.plural import counted
from tools.logs.figures import Metric
from tools.logs.run import Run
from tools.logs.runs import find_runs
from tools.tables.definitions import normalised
from tools.tables.fill import FilledTable
from tools.tables.repository import ROOT

RIGHT, ANOTHER_RUN, WRONG, BLANK = "right", "of an equal run", "wrong", "not filled in"
VERDICTS = (RIGHT, ANOTHER_RUN, WRONG, BLANK)
_ABOUT = re.compile(r"(?:ca\.?|circa|approx\.?|about|~|≈)\s*", re.IGNORECASE)
_DECIMAL_COMMA = re.compile(r"^([+-]?\d+),(?!\d{3}\b)(\d+)")  # 0,7039 and 12,5, not 21,658
_NUMBER = re.compile(r"([+-]?(?:\d+|\d{1,3}(?:,\d{3})+)(?:\.\d+)?(?:[eE][+-]?\d+)?)\s*([A-Za-z%/]*)")
_DURATION = re.compile(r"(?:(\d+):)?(\d{1,2}):(\d{2}(?:\.\d+)?)")
_NOTHING = {"", "-", "\N{EN DASH}", "\N{EM DASH}", "?", "...", "…", "n/a", "na", "n.a.", "none", "tbd", "todo"}
# Other ways to write a metric's unit.
_UNIT_NAMES = {"sec": "s", "seconds": "s", "samples/sec": "samples/s", "steps/sec": "steps/s", "tokens/sec": "tokens/s"}
_USUAL = "steps_per_second"  # for a figure that compares runs, or that no two reference runs have
_NOT_COMPARED = {"repeat", "run_dir", "experiment_name", "output_dir"}


@dataclass(frozen=True)
class OwnCell:
    """Attributes: value: the figure; problem: why it cannot be read; blank: nothing stands there, or that there is
    nothing. A word has none of them.
    """

    value: float | None = None
    problem: str = ""
    blank: bool = False


def read_cell(text: str, metric: Metric) -> OwnCell:
    """A cell as a participant wrote it."""
    plain = normalised(text)
    if plain in _NOTHING:
        return OwnCell(blank=True)
    if not any(character.isdigit() for character in plain):
        return OwnCell()
    plain = _DECIMAL_COMMA.sub(r"\1.\2", _ABOUT.sub("", text.strip("*_` "), count=1))
    if metric.unit == "s" and (match := _DURATION.fullmatch(plain)):
        return OwnCell(int(match[1] or 0) * 3600 + int(match[2]) * 60 + float(match[3]))
    match = _NUMBER.fullmatch(plain)
    if not match:
        return OwnCell(problem="neither a figure such as 12.5 or 21,658 nor a word such as OOM")
    unit = _UNIT_NAMES.get(match[2], match[2])
    if unit and unit != metric.unit:
        return OwnCell(problem=f"in {match[2]}, but the column is in {metric.unit or 'no unit'}")
    return OwnCell(float(match[1].replace(",", "")))


def differences_percent(runs: Iterable[Run], figure: str) -> list[float]:
    """Of every two equal runs, by how much the smaller figure is below the larger; in ascending order."""
    equal: dict[str, list[float]] = {}
    for run in runs:
        if run.state == "completed" and (value := getattr(run.figures, figure)):
            equal.setdefault(_settings(run), []).append(value)
    pairs = (pair for values in equal.values() for pair in combinations(values, 2))
    return sorted((1 - min(pair) / max(pair)) * 100 for pair in pairs)


def _settings(run: Run) -> str:
    """The same text for runs that differ in nothing but when they ran."""
    settings = {name: value for name, value in (run.record.get("settings") or {}).items() if name not in _NOT_COMPARED}
    names = ("exercise", "config", "model", "world_size", "nodes")
    # Runs of other folders are other machines'.
    return json.dumps([str(run.folder.parent.parent), [run.facts[name] for name in names], settings], sort_keys=True)


@cache
def spread_percent(figure: str) -> tuple[float, str]:
    """By how much 9 of 10 pairs of equal reference runs differ in a figure, at most; and the words for it."""
    hosts = sorted((ROOT / "logs" / "reference").glob("*/"))
    found = differences_percent((run for host in hosts for run in find_runs(host)), figure) if figure else []
    if not found and figure != _USUAL:
        return spread_percent(_USUAL)
    percent = found[int(len(found) * 0.9)] if found else 0.0
    return percent, f"9 of 10 of {counted(len(found), 'pair')} of equal runs in logs/reference"


@dataclass(frozen=True)
class Judgement:
    """Attributes: verdict: RIGHT, ANOTHER_RUN, WRONG or BLANK; text: what to say about the cell, "" for nothing."""

    table: str
    line: int
    row: str
    column: str
    verdict: str
    text: str


Checked = list[tuple[FilledTable, list[Judgement]]]


def counts(checked: Checked) -> Counter[str]:
    """How many cells have each verdict."""
    return Counter(cell.verdict for _, cells in checked for cell in cells)


@dataclass(frozen=True)
class Grade:
    """One participant's file.

    Attributes:
        file: as given.
        name: whose it is.
        checked: its tables as the runs fill them, each with the judgement of its cells.
        problem: why it could not be checked, "" for nothing.
    """

    file: str
    name: str
    checked: Checked
    problem: str = ""

    @property
    def count(self) -> Counter[str]:
        return counts(self.checked)

    @property
    def tables(self) -> str:
        """Their numbers."""
        return " ".join(table.table.number for table, _ in self.checked)
