"""What an exercise's runs cost: the one source of the times that its README and the instructor's kit give.

The time of a line is the planner's expectation. A line that the planner does not plan, as of the peers' trainings,
takes as long as the median of the reference runs of its launcher.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from functools import cache
from itertools import chain

from tools.logs.runs import find_runs
from tools.plan.gpus import Gpu
from tools.plan.predict import markdown
from tools.plan.simulate import without_errors
from tools.plan.submitted_lines import predictions_of
from tools.submit.submissions import Submission
from tools.tables.repository import ROOT

# Ends a line of submit.txt that every participant is to run; `submit --match must-do` starts these lines.
MUST_DO = "must-do"


def minutes_and_gpu_hours(lines: Sequence[Submission], gpu: Gpu) -> tuple[float, float] | None:
    """The sums over the runs, one after the other; None where one was neither planned nor measured.

    Raises:
        InputError: a line that cannot be planned, or more GPUs than a node of this kind has.
    """
    times_s = [
        found.ranges["total_runtime_s"].expected if found else _measured_s(line.exercise.name, line.launcher)
        for line, found in zip(lines, without_errors(predictions_of(lines, gpu)), strict=True)
    ]
    if None in times_s:
        return None
    gpu_s = sum(time_s * count for time_s, count in zip(times_s, map(_gpus, lines), strict=True))
    return sum(times_s) / 60, gpu_s / 3600


def table(lines: Sequence[Submission], gpu: Gpu) -> str:
    """Two rows for each exercise, what one must do and all; one row where these are the same. Then those of all."""
    groups = {line.exercise.name: [] for line in lines}
    for line in lines:
        groups[line.exercise.name].append(line)
    if several := len(groups) > 1:
        known = [own for own in groups.values() if minutes_and_gpu_hours(own, gpu)]
        groups["together"] = list(chain.from_iterable(known))  # of what somebody has measured
    rows = []
    for name, own in groups.items():
        required = [line for line in own if line.contains(MUST_DO)]
        for what, chosen in [("must do", required)] * bool(required) + [("all", own)] * (own != required):
            gpus = sorted({min(map(_gpus, chosen)), max(map(_gpus, chosen))})
            amounts = minutes_and_gpu_hours(chosen, gpu)
            cells = ["not measured"] * 3
            if amounts:  # two digits are more than the prediction's error allows
                cells = [f"{float(f'{amount:.2g}'):,g}" for amount in (*amounts, amounts[1] * gpu.tdp_w / 1000)]
            rows.append([f"{name}: {what}" if several else what, str(len(chosen)), " to ".join(map(str, gpus)), *cells])
    titles = ["Runs", "Number", "GPUs each", "One after the other (min)", "GPU-hours", "At most (kWh)"]
    return (
        f"{markdown(titles, rows)}\n\nExpected on {gpu.driver_name}; the queue, reading and filling in come on top. "
        f"kWh: of the GPUs alone, at the {gpu.tdp_w} W of their data sheet."
    )


def _gpus(line: Submission) -> int:
    return line.count("nodes") * line.count("gpus-per-node")


@cache
def _measured_s(exercise: str, launcher: str) -> float | None:
    """Median time (s) of the completed reference runs of a launcher, or None without such a run."""
    runs = find_runs(*sorted((ROOT / "logs/reference").glob("*/")), experiment=exercise)
    times_s = [
        run.runtime_s
        for run in runs
        if run.state == "completed" and run.runtime_s and launcher in (run.record.submission or "").split()
    ]
    return statistics.median(times_s) if times_s else None
