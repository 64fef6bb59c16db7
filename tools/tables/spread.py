"""How much two equal runs differ in a time or a speed: measured, on a participant's own runs or the reference runs."""

import json
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import combinations
from pathlib import Path

from evidence.counted import counted
from tools.logs.figures import Metric
from tools.logs.run import Run
from tools.logs.runs import find_runs
from tools.tables.repository import ROOT

_USUAL = "steps_per_second"  # for a figure that no two reference runs have
_NOT_COMPARED = {"repeat", "run_dir", "experiment_name", "output_dir"}


def differences_percent(runs: Iterable[Run], figure: str) -> list[float]:
    """By how much the smaller figure is below the larger, for every two equal runs, ascending."""
    equal: dict[str, list[float]] = {}
    for run in runs:
        if run.state == "completed" and (value := getattr(run.figures, figure)):
            equal.setdefault(_settings(run), []).append(value)
    pairs = (pair for values in equal.values() for pair in combinations(values, 2))
    return sorted((1 - min(pair) / max(pair)) * 100 for pair in pairs)


def _settings(run: Run) -> str:
    """A text that is equal for runs which differ only in when they ran."""
    settings = {name: value for name, value in (run.record.get("settings") or {}).items() if name not in _NOT_COMPARED}
    names = ("exercise", "config", "model", "world_size", "nodes")
    # Runs of other folders are other machines'.
    return json.dumps([str(run.folder.parent.parent), [run.facts[name] for name in names], settings], sort_keys=True)


def spread_percent(metric: Metric, own: Sequence[Run]) -> tuple[float, str]:
    """By how much two equal runs differ in this figure, and whose: the participant's largest, or 9 of 10 of ours."""
    figure = metric.figure or _USUAL
    if found := differences_percent(own, figure):
        return found[-1], f"your {counted(len(found), 'pair')} of equal runs"
    return _reference(figure)


@cache
def _reference(figure: str) -> tuple[float, str]:
    folder = ROOT / "logs" / "reference"
    hosts: list[Path] = sorted(path for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []
    found = differences_percent((run for host in hosts for run in find_runs(host)), figure)
    if not found:
        return _reference(_USUAL) if figure != _USUAL else (0.0, "no equal runs")
    return found[int(len(found) * 0.9)], f"9 of 10 of {counted(len(found), 'pair')} of equal runs in logs/reference"
