"""How good the planner's first choice is, where several strategies ran for the same work on the same machine."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from run_folder.plural import counted
from tools.logs.run import Run
from tools.plan.accuracy import Case, measured_of
from tools.plan.predict import first_choice, markdown

GOOD_PERCENT = 5
# Rented machines are given back: runs of one folder that are further apart than this may be of two.
_ONE_LOAN = timedelta(hours=6)
# What strategies may differ in; all else is the work. `compile`: ZeRO-3 runs without (speed-ladder/submit.txt).
_CHOSEN = ("batch_size", "engine", "gradient_checkpointing", "compile", "ddp_bucket_mib", "labelled")


def comparisons(cases: Sequence[Case]) -> list[dict[str, Any]]:
    """A row for each work (equal GPUs, rows per step and GPU, model) that several strategies have a time for.

    Returns:
        `where`: the folder of logs; `work`: in words; `options`: how many; `first`: what the planner would choose,
        `best`: what was the fastest; `slower_percent`: the first than the best, infinite if it ran out of memory.
    """
    cells: dict[tuple[str, str], dict[str, tuple[Case, list[Run]]]] = {}
    machines = _machines([run for case in cases for run in case.runs])
    for case in cases:
        for run in case.runs:
            ways = cells.setdefault((machines[run.folder], _work(case)), {})
            ways.setdefault(_way(case), (case, []))[1].append(run)
    found = []
    for (place, work), ways in sorted(cells.items()):
        options = []
        for case, runs in ways.values():
            own = replace(case, runs=runs, each=[measured_of(run) for run in runs if run.state == "completed"])
            if own.ran_out or "step_time_s" in own.measured:  # not a profile, nor DeepSpeed's timers
                options.append(own)
        if sum(not one.ran_out for one in options) < 2:
            continue
        times_s = [one.measured.get("step_time_s", float("inf")) for one in options]
        first, best = first_choice([one.predicted.place for one in options]), times_s.index(min(times_s))
        row = {"where": place, "work": work, "options": len(options)}
        row |= {"first": _name(options[first]), "best": _name(options[best])}
        found.append(row | {"slower_percent": 100 * (times_s[first] / times_s[best] - 1)})
    return found


def _machines(runs: Sequence[Run]) -> dict[Path, str]:
    """By run folder: the folder that holds the exercise's folder, with a number from the second loan on."""
    found, last, loans = {}, {}, {}
    for run in sorted(runs, key=lambda run: run.record.start_time):
        place = Path(run.folder).parent.parent.name
        start = datetime.fromisoformat(run.record.start_time)
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
    shape, config = case.workload.shape, case.runs[0].record.config
    split = f"{shape['batch_size']} x {case.workload.strategy.accumulation}"
    return f"{config or case.workload.strategy.method}, {split}"


def _work(case: Case) -> str:
    workload, shape, strategy = case.workload, case.workload.shape, case.workload.strategy
    rows = shape["batch_size"] * strategy.accumulation
    nodes = f" on {workload.nodes} nodes" if workload.nodes > 1 else ""
    gpus = f"{counted(strategy.world_size, 'GPU')}{nodes}"
    words = [shape["model_name"], gpus, shape["precision"], f"{counted(rows, 'row')} of {shape['max_length']}"]
    words += ["dynamic padding"] * workload.dynamic_padding + ["labelled"] * bool(shape.get("labelled"))
    known = {"model_name", "precision", "max_length", *_CHOSEN}
    if switches := {name: value for name, value in shape.items() if name not in known and value}:
        words.append(json.dumps(switches, sort_keys=True))
    return ", ".join(words)


def table(found: Sequence[dict[str, Any]]) -> str:
    """A row per choice: how much slower the first choice is than the measured best."""
    rows = [
        [
            *(one["where"], one["work"].split(", {")[0], one["first"]),
            *(f"{one['best']} of {one['options']}", f"{one['slower_percent']:.1f}"),
        ]
        for one in sorted(found, key=lambda one: (-one["slower_percent"], one["where"], one["work"]))
    ]
    titles = ["logs", "work", "first choice", "best", "slower (%)"]
    return f"{markdown(titles, rows)}\n\n{sentence(found)}"


def sentence(found: Sequence[dict[str, Any]]) -> str:
    """How many first choices are good ones, and how bad the worst is."""
    good = sum(one["slower_percent"] <= GOOD_PERCENT for one in found)
    text = (
        f"Where several strategies ran for the same work on the same machine, the one predicted to be the fastest is "
        f"within {GOOD_PERCENT} % of the fastest measured in {good} of {len(found)} cases."
    )
    if good < len(found):
        worst = max(found, key=lambda one: one["slower_percent"])
        slower = f"{worst['slower_percent']:.0f} % slower than {worst['best']}"
        text += f" The worst: {worst['first']} is {slower} ({worst['where']})."
    return textwrap.fill(text, 100, break_on_hyphens=False)
