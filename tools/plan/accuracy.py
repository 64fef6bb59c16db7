"""How wrong the predictions are for the runs that were measured, and how good the first choice is.

The latter where several strategies did the same work on one machine.
"""

import json
import statistics
import textwrap
from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import timedelta
from math import inf
from pathlib import Path
from typing import Any

from tools import plots
from tools.logs.run import Run
from tools.plan.measured import METRICS, Case, measured_of
from tools.plan.predict import first_choice
from workshop.record.printable import markdown
from workshop.settings.model_file import model_file


def summary(cases: Sequence[Case]) -> str:
    """A row per strategy, kind of GPU, model family and limit: mean error in percent (the worst), over configurations.

    A step's error also has its sign: whether it is predicted too long (+) or too short on average.
    """
    kinds = {
        "strategy": lambda case: case.workload.way.replace("none", "one GPU"),
        "GPUs": lambda case: f"{case.workload.strategy.world_size} x {_gpu(case)}",
        "family": lambda case: model_file(case.workload.shape["model_name"]).get("model_type", "simple-gpt"),
        "limited by": lambda case: case.predicted.parts.decided_by,
    }
    groups = {f"{kind}: {name}": own for kind, of in kinds.items() for name, own in sorted(_grouped(cases, of).items())}
    groups["**all**"] = list(cases)
    rows = [[name, str(len(own)), *[_errors(own, metric) for metric in METRICS]] for name, own in groups.items()]
    inside = []
    for metric in METRICS:
        held = [
            case.predicted.ranges[metric].holds(one[metric]) for case in cases for one in case.each if metric in one
        ]
        inside.append(f"{100 * statistics.fmean(held):.0f} %" if held else "-")
    table = markdown(["", "configurations", *METRICS.values()], rows)
    return f"{table}\n| runs inside the interval | | {' | '.join(inside)} |"


def _errors(cases: Sequence[Case], metric: str) -> str:
    if not (errors := [one.error_percent(metric) for one in cases if metric in one.measured]):
        return "-"
    sizes = [abs(error) for error in errors]
    sign = f"{statistics.fmean(errors):+.0f}; " * (metric == "step_time_s")
    return f"{sign}{statistics.fmean(sizes):.1f} ({max(sizes):.0f})"


def out_of_memory(cases: Sequence[Case]) -> str:
    """A sentence: how often "does not fit" was predicted rightly and wrongly."""
    ended = [case for case in cases if case.ran_out]
    said = [case for case in cases if case.predicted.verdict == "does not fit"]
    right = sum(case.ran_out for case in said)
    return (
        f"Said not to fit: {right} of the {len(ended)} configurations that ran out of memory, {len(said) - right} of "
        f"the {len(cases) - len(ended)} that completed."
    )


def draw(cases: Sequence[Case], output: Path) -> None:
    """Predicted over measured, a point per configuration."""
    with plots.figure(output, 2, 1, 9) as (drawn, axes):
        panels = (("peak_allocated_mib", "peak allocated (MiB)"), ("step_time_s", "step time (s)"))
        for one, (metric, title) in zip(axes, panels, strict=True):
            for number, (family, every) in enumerate(sorted(_grouped(cases, lambda case: case.family).items())):
                marker = "o^"[number // 10]  # there are ten colours
                own = [case for case in every if metric in case.measured]
                predicted = [case.predicted.ranges[metric].expected for case in own]
                one.scatter([case.measured[metric] for case in own], predicted, s=18, marker=marker, label=family)
            ends = one.get_xlim()
            one.plot(ends, ends, color="0.6", linewidth=1, label="as measured")
            one.set(xscale="log", yscale="log", title=title)
            for axis in (one.xaxis, one.yaxis):
                axis.set_major_formatter("{x:g}")
            plots.label(one, "measured", "predicted", "nothing measured")
        plots.legend_below(drawn, axes, 5)


def _grouped(cases: Sequence[Case], of: Callable[[Case], str]) -> dict[str, list[Case]]:
    found: dict[str, list[Case]] = defaultdict(list)
    for case in cases:
        found[of(case)].append(case)
    return found


def _gpu(case: Case) -> str:
    """Emulated nodes are processes of one machine."""
    return case.gpu.driver_name.split()[1] + ", emulated nodes" * (case.workload.nodes > 1)


# ---- first choice ----

GOOD_PERCENT = 5
# Rented machines are given back: runs of one folder further apart than this may be from two machines.
_ONE_LOAN = timedelta(hours=6)
# Fields in which strategies may differ; all others are the work. compile: ZeRO-3 runs without it (submit.txt).
_CHOSEN = ("batch_size", "engine", "gradient_checkpointing", "compile", "ddp_bucket_mib", "labelled")


def comparisons(cases: Sequence[Case]) -> list[dict[str, Any]]:
    """A row for each work (equal GPUs, rows per step and GPU, model) that several strategies have a time for.

    Returns:
        `where`: the folder of logs; `model`; `first`: what the planner would choose, `best`: what was the fastest;
        `slower_percent`: the first than the best, infinite if it ran out of memory.
    """
    machines = _machines([run for case in cases for run in case.runs])
    # By machine and work: by strategy a case, and the times of its runs there.
    works: dict[tuple[str, int, str], dict[str, tuple[Case, list[float]]]] = defaultdict(dict)
    for case in cases:
        for run in case.runs:
            time_s = measured_of(run).get("step_time_s") if run.state == "completed" else inf
            if time_s:  # not a profile, nor DeepSpeed's timers
                works[*machines[run.folder], _work(case)].setdefault(_way(case), (case, []))[1].append(time_s)
    found = []
    for (folder, *_), ways in sorted(works.items()):
        options = [case for case, _ in ways.values()]
        times_s = [statistics.median([one for one in own if one < inf] or [inf]) for _, own in ways.values()]
        if sum(time_s < inf for time_s in times_s) > 1:
            first, best = first_choice([one.predicted for one in options]), times_s.index(min(times_s))
            row = {"where": folder, "first": _name(options[first]), "best": _name(options[best])}
            row["model"] = options[0].workload.shape["model_name"]
            found.append(row | {"slower_percent": 100 * (times_s[first] / times_s[best] - 1)})
    return found


def _machines(runs: Sequence[Run]) -> dict[Path, tuple[str, int]]:
    """By run folder: the folder that holds the exercise's folder, and the number of the loan."""
    found: dict[Path, tuple[str, int]] = {}
    before, loan = None, 0
    for run in sorted(runs, key=lambda run: (run.folder.parents[1], run.start)):
        loan += before is None or run.start - before > _ONE_LOAN  # the next folder's number may go on
        found[run.folder], before = (run.folder.parents[1].name, loan), run.start
    return found


def _way(case: Case) -> str:
    """Equal for equal strategies, whatever the name of the configuration."""
    strategy, shape = case.workload.strategy, case.workload.shape
    # The weak-scaling configurations of custom_model say no strategy.
    way = vars(strategy) | ({"config": {}} if "gpus" in strategy.config else {})
    return json.dumps([way, shape["batch_size"], shape["gradient_checkpointing"]], sort_keys=True)


def _name(case: Case) -> str:
    """The configuration, and how the rows are split."""
    name = case.runs[0].record.config or case.workload.strategy.method
    return f"{name}, {case.workload.micro_batches}"


def _work(case: Case) -> str:
    """Equal for equal work, whatever the strategy."""
    workload, shape, strategy = case.workload, case.workload.shape, case.workload.strategy
    fixed = {name: value for name, value in shape.items() if name not in _CHOSEN and value}
    fixed |= {"labelled": bool(shape.get("labelled")), "rows": shape["batch_size"] * strategy.accumulation}
    return json.dumps([fixed, strategy.world_size, workload.nodes, workload.dynamic_padding], sort_keys=True)


def first_choices(found: Sequence[dict[str, Any]]) -> str:
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
