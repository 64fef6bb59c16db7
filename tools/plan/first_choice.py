"""How good the planner's first choice is, where several strategies ran for the same work on the same machine."""

from __future__ import annotations

import json
import statistics
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from run_folder.plural import counted
from tools.logs.run import Run
from tools.plan.accuracy import Case, measured_of
from tools.plan.predict import first_choice, markdown

GOOD_PERCENT = 5
# Rented machines are given back: runs of one folder that are further apart than this may be of two.
_ONE_LOAN = timedelta(hours=6)
# What strategies may differ in; all else is the work. `compile`: ZeRO-3 runs without (speed-ladder/submit.txt).
_CHOSEN = ("batch_size", "engine", "gradient_checkpointing", "compile", "ddp_bucket_mib", "labelled")


@dataclass(frozen=True)
class Option:
    """One way to do the work.

    Attributes:
        step_s: measured there; None: out of memory; predicted_s, predicted_mib: without it.
    """

    name: str
    step_s: float | None
    predicted_s: float
    predicted_mib: float
    fits: bool


@dataclass(frozen=True)
class Comparison:
    """Attributes: where: the folder of logs; work: in words; options: at least two, one of them measured."""

    where: str
    work: str
    options: list[Option]

    @property
    def first(self) -> Option:
        """What the planner would choose."""
        places = [(not option.fits, option.predicted_s, option.predicted_mib) for option in self.options]
        return self.options[first_choice(places)]

    @property
    def best(self) -> Option:
        return min(self.options, key=lambda option: option.step_s or float("inf"))

    @property
    def slower_percent(self) -> float:
        """The first choice than the measured best; infinite if it ran out of memory."""
        return 100 * ((self.first.step_s or float("inf")) / self.best.step_s - 1)


def comparisons(cases: Sequence[Case]) -> list[Comparison]:
    """Of runs with equal GPUs, rows per step and GPU, and model; only where several strategies have a time."""
    cells: dict[tuple[str, str], dict[str, list[Case]]] = {}
    machines = _machines([run for case in cases for run in case.runs])
    for case in cases:
        for place in {machines[run.folder] for run in case.runs}:
            cells.setdefault((place, _work(case)), {}).setdefault(_way(case), []).append(case)
    found = []
    for (place, work), ways in sorted(cells.items()):
        options = [option for cases in ways.values() if (option := _option(cases, place, machines))]
        if sum(option.step_s is not None for option in options) > 1:
            found.append(Comparison(place, work, options))
    return found


def _option(cases: Sequence[Case], place: str, machines: dict[Path, str]) -> Option | None:
    """None without a time: a profile, or DeepSpeed's timers."""
    runs = [run for case in cases for run in case.runs if machines[run.folder] == place]
    measured = [measured_of(run) for run in runs if run.state == "completed"]
    times = [one["step_time_s"] for one in measured if "step_time_s" in one]
    if not times and not all(case.ran_out for case in cases):
        return None
    prediction, measured_s = cases[0].predicted, statistics.median(times) if times else None
    expected_s, expected_mib = (prediction.ranges[name].expected for name in ("step_time_s", "peak_allocated_mib"))
    return Option(_name(cases[0]), measured_s, expected_s, expected_mib, prediction.verdict == "fits")


def _machines(runs: Sequence[Run]) -> dict[Path, str]:
    """By run folder: the folder that holds the exercise's folder, with a number from the second loan on."""
    found, last, loans = {}, {}, {}
    for run in sorted(runs, key=lambda run: run.record["start_time"]):
        place = Path(run.folder).parent.parent.name
        start = datetime.fromisoformat(run.record["start_time"])
        loans[place] = loans.get(place, 1) + (start - last.get(place, start) > _ONE_LOAN)
        last[place] = start
        found[run.folder] = place + (f" ({loans[place]})" if loans[place] > 1 else "")
    return found


def _way(case: Case) -> str:
    """Equal for equal strategies, whatever their configuration's name."""
    strategy, shape = case.workload.strategy, case.workload.shape
    # The weak-scaling configurations of custom_model say no strategy.
    way = vars(strategy) | ({"config": {}} if "gpus" in strategy.config else {})
    return json.dumps([way, shape["batch_size"], shape["gradient_checkpointing"]], sort_keys=True)


def _name(case: Case) -> str:
    """The configuration, and how the rows are split."""
    shape, facts = case.workload.shape, case.runs[0].facts
    split = f"{shape['batch_size']} x {case.workload.strategy.accumulation}"
    return f"{facts['config'] or case.workload.strategy.method}, {split}"


def _work(case: Case) -> str:
    shape, strategy, setup = case.workload.shape, case.workload.strategy, case.workload.setup
    rows = shape["batch_size"] * strategy.accumulation
    nodes = f" on {setup.nodes} nodes" if setup.nodes > 1 else ""
    gpus = f"{counted(strategy.world_size, 'GPU')}{nodes}"
    words = [shape["model_name"], gpus, shape["precision"], f"{counted(rows, 'row')} of {shape['max_length']}"]
    words += ["dynamic padding"] * setup.dynamic_padding + ["labelled"] * bool(shape.get("labelled"))
    known = {"model_name", "precision", "max_length", *_CHOSEN}
    if switches := {name: value for name, value in shape.items() if name not in known and value}:
        words.append(json.dumps(switches, sort_keys=True))
    return ", ".join(words)


def table(found: Sequence[Comparison]) -> str:
    """A row per choice: how much slower the first choice is than the measured best."""
    rows = []
    for one in sorted(found, key=lambda one: (-one.slower_percent, one.where, one.work)):
        best = f"{one.best.name} of {len(one.options)}"
        rows.append([one.where, one.work.split(", {")[0], one.first.name, best, f"{one.slower_percent:.1f}"])
    titles = ["logs", "work", "first choice", "best", "slower (%)"]
    return f"{markdown(titles, rows)}\n\n{sentence(found)}"


def sentence(found: Sequence[Comparison]) -> str:
    """How many first choices are good ones, and how bad the worst is."""
    good = sum(one.slower_percent <= GOOD_PERCENT for one in found)
    text = (
        f"Where several strategies ran for the same work on the same machine, the one predicted to be the fastest is "
        f"within {GOOD_PERCENT} % of the fastest measured in {good} of {len(found)} cases."
    )
    worst = max(found, key=lambda one: one.slower_percent, default=None)
    if worst and worst.slower_percent > GOOD_PERCENT:
        slower = f"{worst.slower_percent:.0f} % slower than {worst.best.name}"
        text += f" The worst: {worst.first.name} is {slower} ({worst.where})."
    return textwrap.fill(text, 100, break_on_hyphens=False)
