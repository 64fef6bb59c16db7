"""What an exercise's runs cost: the one source of the times that its README and the instructor's kit give.

The time of a line is the planner's expectation. A line that the planner does not plan, as of the peers' trainings,
takes as long as the median of the reference runs of its launcher.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from tools.logs.runs import find_runs
from tools.plan.gpus import Gpu
from tools.plan.predict import markdown, predict
from tools.plan.submitted_lines import check_node, workload_of
from tools.submit.submissions import Submission
from tools.tables.repository import ROOT

# Ends a line of submit.txt that every participant is to run; `submit --match must-do` starts these lines.
MUST_DO = "must-do"


@dataclass(frozen=True)
class Cost:
    """What some runs cost.

    Attributes:
        runs: how many there are.
        gpus: the smallest and the largest number of GPUs of one.
        minutes: one after the other; gpu_hours: of all. None where a run was neither planned nor measured.
    """

    runs: int
    gpus: tuple[int, int]
    minutes: float | None
    gpu_hours: float | None


def must_do(lines: Sequence[Submission]) -> list[Submission]:
    """The lines that submit.txt marks as must-do."""
    return [line for line in lines if line.contains(MUST_DO)]


def cost(lines: Sequence[Submission], gpu: Gpu) -> Cost:
    """Args: lines: at least one.

    Raises:
        InputError: a line that cannot be planned, or more GPUs than a node of this kind has.
    """
    gpus = [line.count("nodes") * line.count("gpus-per-node") for line in lines]
    times_s = _times_s(lines, gpu)
    minutes = gpu_hours = None
    if None not in times_s:
        minutes = sum(times_s) / 60
        gpu_hours = sum(time_s * count for time_s, count in zip(times_s, gpus, strict=True)) / 3600
    return Cost(len(lines), (min(gpus), max(gpus)), minutes, gpu_hours)


def table(lines: Sequence[Submission], gpu: Gpu) -> str:
    """Two rows for each exercise, what one must do and all; one row where these are the same. Then those of all."""
    groups = {line.exercise.name: [] for line in lines}
    for line in lines:
        groups[line.exercise.name].append(line)
    if several := len(groups) > 1:
        groups["together"] = list(lines)
    rows = []
    for name, own in groups.items():
        required = must_do(own)
        for what, chosen in [("must do", required)] * bool(required) + [("all", own)] * (own != required):
            rows.append([f"{name}: {what}" if several else what, *_cells(cost(chosen, gpu))])
    titles = ["Runs", "Number", "GPUs each", "One after the other (min)", "GPU-hours"]
    return f"{markdown(titles, rows)}\n\nExpected on {gpu.driver_name}; the queue, reading and filling in come on top."


def _cells(found: Cost) -> Iterator[str]:
    yield str(found.runs)
    yield " to ".join(map(str, dict.fromkeys(found.gpus)))
    for amount in (found.minutes, found.gpu_hours):
        # Two digits are more than the prediction's error allows.
        yield "not measured" if amount is None else f"{float(f'{amount:.2g}'):,g}"


def _times_s(lines: Sequence[Submission], gpu: Gpu) -> list[float | None]:
    for line in lines:
        check_node(line, gpu)
    workloads = [workload_of(line) for line in lines]
    planned = iter(predict([workload for workload in workloads if workload], gpu))
    return [
        next(planned).ranges["total_runtime_s"].expected if workload else _measured_s(line.exercise.name, line.launcher)
        for line, workload in zip(lines, workloads, strict=True)
    ]


@cache
def _measured_s(exercise: str, launcher: str) -> float | None:
    """Median time (s) of the completed reference runs of a launcher, or None without such a run."""
    runs = find_runs(*sorted((ROOT / "logs/reference").glob("*/")), experiment=exercise)
    times_s = [
        run.runtime_s
        for run in runs
        if run.state == "completed" and run.runtime_s and launcher in run.record.get("submission", "").split()
    ]
    return statistics.median(times_s) if times_s else None
