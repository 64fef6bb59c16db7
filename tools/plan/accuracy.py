"""How wrong the predictions are for the runs that were measured.

Also: how good the first choice is where several strategies did the same work on one machine, and how wrong predictions
were that were kept before their lines ran.
"""

import json
import statistics
import textwrap
from collections import defaultdict
from collections.abc import Sequence
from math import inf
from pathlib import Path
from typing import Any

from tools.errors import InputError
from tools.logs.run import Run, read_object
from tools.plan.measured import METRICS, Case, measured_of
from tools.plan.predict import Range
from tools.plan.ranking import first_choice
from tools.tables.markdown import markdown
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
    groups: dict[str, list[Case]] = defaultdict(list)
    for kind, of in kinds.items():
        for case in sorted(cases, key=of):
            groups[f"{kind}: {of(case)}"].append(case)
    groups["**all**"] = list(cases)
    rows = []
    for name, own in groups.items():
        errors = {metric: [one.error_percent(metric) for one in own if metric in one.measured] for metric in METRICS}
        cells = {metric: _mean_and_worst(found, 0) for metric, found in errors.items()}
        if found := errors["step_time_s"]:
            cells["step_time_s"] = f"{statistics.fmean(found):+.0f}; {cells['step_time_s']}"
        rows.append([name, str(len(own)), *cells.values()])
    inside = []
    for metric in METRICS:
        held = [
            case.predicted.ranges[metric].holds(one[metric]) for case in cases for one in case.each if metric in one
        ]
        inside.append(f"{100 * statistics.fmean(held):.0f} %" if held else "-")
    table = markdown(["", "configurations", *METRICS.values()], rows)
    return f"{table}\n| runs inside the interval | | {' | '.join(inside)} |"


def _mean_and_worst(errors: Sequence[float], decimals: int) -> str:
    sizes = [abs(error) for error in errors]
    return f"{statistics.fmean(sizes):.1f} ({max(sizes):.{decimals}f})" if sizes else "-"


def out_of_memory(cases: Sequence[Case]) -> str:
    """A sentence: how often "does not fit" was predicted rightly and wrongly."""
    ended = [case for case in cases if case.ran_out]
    said = [case for case in cases if case.predicted.verdict == "does not fit"]
    right = sum(case.ran_out for case in said)
    return (
        f"Said not to fit: {right} of the {len(ended)} configurations that ran out of memory, {len(said) - right} of "
        f"the {len(cases) - len(ended)} that completed."
    )


def _gpu(case: Case) -> str:
    """Emulated nodes are processes of one machine."""
    kind = case.gpu.driver_name.split()[1]
    return f"{kind}, emulated nodes" if case.workload.nodes > 1 else kind


# ---- kept before their lines ran: `plan --list FILE --format json` ----


def kept_table(file: Path, runs: Sequence[Run]) -> str:
    """A row per prediction whose line completed: errors in percent; then mean, worst, and runs inside the intervals.

    Raises InputError for a file without predictions, or if none of its lines ran.
    """
    try:
        planned = [one for one in read_object(file)["runs"] if one["verdict"] != "not planned"]
        kept = {one["run"]: {name: Range(**one[name]) for name in METRICS} for one in planned}
    except (KeyError, TypeError):
        raise InputError(f"{file}: no predictions; expected what plan --format json prints") from None
    newest = _newest_runs(list(kept), runs)
    found = [(line, kept[line], measured_of(newest[line])) for line in kept if line in newest]
    if not found:
        raise InputError(f"{file}: none of its {len(kept)} lines completed on a GPU in these logs")
    columns = [[*(line for line, *_ in found), "**mean (worst)**", "inside the interval"]]
    for metric in METRICS:
        pairs = [(ranges[metric], measured.get(metric)) for _, ranges, measured in found]
        errors = [expected.error_percent(value) for expected, value in pairs if value]
        inside = sum(expected.holds(value) for expected, value in pairs if value)
        cells = [f"{expected.error_percent(value):+.1f}" if value else "-" for expected, value in pairs]
        columns.append([*cells, _mean_and_worst(errors, 1), f"{inside} of {len(errors)}"])
    return markdown(["predicted before it ran: error (%)", *METRICS.values()], zip(*columns, strict=True))


def _newest_runs(lines: Sequence[str], runs: Sequence[Run]) -> dict[str, Run]:
    """The newest run of each line that completed on a GPU.

    A run may have more settings, from the shell, than its line. If several lines match, as `RUNG=9_rows` and
    `RUNG=9_rows BATCH_SIZE=8`, the longest one counts.
    """
    wanted = {line: set(line.split()) for line in lines}
    newest: dict[str, Run] = {}
    usable = [run for run in runs if run.state == "completed" and run.record.device != "cpu"]
    for run in sorted(usable, key=lambda run: run.record.start_time):
        settings = [f"{name.upper()}={value}" for name, value in run.settings.items()]
        unrecorded = [*settings, f"--gpus-per-node={run.record.gpus_per_node}", run.record.launcher or ""]
        started = {f"{run.record.exercise}:", *((run.record.submission or "").split() or unrecorded)}
        own = [line for line, words in wanted.items() if words <= started]
        if own:
            newest[max(own, key=lambda line: len(wanted[line]))] = run
    return newest


# ---- first choice ----

GOOD_PERCENT = 5
# Fields in which strategies may differ; all others are the work. compile: ZeRO-3 runs without it (submit.txt).
_CHOSEN = ("batch_size", "engine", "gradient_checkpointing", "compile", "ddp_bucket_mib", "labelled")


def comparisons(cases: Sequence[Case]) -> list[dict[str, Any]]:
    """A row for each work (equal GPUs, rows per step and GPU, model) that several strategies have a time for.

    Returns:
        `where`: the folder of logs; `model`; `first`: what the planner would choose, `best`: what was the fastest;
        `slower_percent`: the first than the best, infinite if it ran out of memory.
    """
    # By folder, machine and work: by strategy a case, and the times of its runs there.
    works: dict[tuple[str, str, str], dict[str, tuple[Case, list[float]]]] = defaultdict(dict)
    for case in cases:
        work, strategy = _work_and_strategy(case)
        for run in case.runs:
            time_s = measured_of(run).get("step_time_s") if run.state == "completed" else inf
            if time_s:  # not a profile, nor DeepSpeed's timers
                where = run.folder.parents[1].name, run.record.host or "", work
                works[where].setdefault(strategy, (case, []))[1].append(time_s)
    found = []
    for (folder, *_), ways in sorted(works.items()):
        options = [case for case, _ in ways.values()]
        times_s = [statistics.median([one for one in own if one < inf] or [inf]) for _, own in ways.values()]
        if sum(time_s < inf for time_s in times_s) > 1:
            first, best = first_choice([one.predicted for one in options]), times_s.index(min(times_s))
            names = [one.runs[0].record.config or one.workload.strategy.sharding for one in options]
            names = [f"{name}, {one.workload.micro_batches}" for name, one in zip(names, options, strict=True)]
            row = {"where": folder, "model": options[0].workload.shape["model_name"]}
            row |= {"first": names[first], "best": names[best]}
            found.append(row | {"slower_percent": 100 * (times_s[first] / times_s[best] - 1)})
    return found


def _work_and_strategy(case: Case) -> tuple[str, str]:
    """Equal for equal work, whatever the strategy; and for equal strategies, whatever the configuration's name."""
    workload, shape, strategy = case.workload, case.workload.shape, case.workload.strategy
    fixed = {name: value for name, value in shape.items() if name not in _CHOSEN and value}
    fixed |= {"labelled": bool(shape.get("labelled")), "rows": shape["batch_size"] * strategy.accumulation}
    # The weak-scaling configurations of custom_model say no strategy.
    way = vars(strategy) | ({"config": {}} if "gpus" in strategy.config else {})
    own = way, shape["batch_size"], shape["gradient_checkpointing"]
    work = fixed, strategy.world_size, workload.nodes, workload.filled
    return json.dumps(work, sort_keys=True), json.dumps(own, sort_keys=True)


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
