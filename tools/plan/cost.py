"""The cost of an exercise's runs: the source of the times in its README and in the instructor's kit.

The time of a line is the planner's expectation. For a line that is not planned, as the peers' trainings, it is the
median of the launcher's reference runs.
"""

import statistics
from collections.abc import Sequence
from functools import cache
from itertools import chain
from operator import mul

from tools.logs.runs import find_runs
from tools.plan.gpus import Gpu
from tools.plan.submitted_lines import predictions_of
from tools.submit.submissions import Submission
from tools.tables.repository import ROOT
from workshop.run_folder.printable import markdown

# Ends a line of submit.txt that every participant is to run; `submit --match must-do` starts these lines.
MUST_DO = "must-do"


def table(lines: Sequence[Submission], gpu: Gpu) -> str:
    """Two rows for each exercise, what one must do and all; one row where these are the same. Then those of all.

    Raises InputError for a line that cannot be planned on this GPU.
    """
    groups: dict[str, list[tuple[bool, int, float | None]]] = {}  # whether one must do it, GPUs, time
    for line, found in zip(lines, predictions_of(lines, gpu), strict=True):
        name = line.exercise.name
        time_s = found.ranges["total_runtime_s"].expected if found else _measured_s(name, line.launcher)
        gpus = line.count("nodes") * line.count("gpus-per-node")
        groups.setdefault(name, []).append((line.contains(MUST_DO), gpus, time_s))
    if several := len(groups) > 1:
        known = [own for own in groups.values() if None not in (time_s for *_, time_s in own)]
        groups["together"] = list(chain.from_iterable(known))  # of what somebody has measured
    rows = []
    for name, own in groups.items():
        required = [one for one in own if one[0]]
        for what, chosen in [("must do", required)] * bool(required) + [("all", own)] * (own != required):
            _, counts, times_s = zip(*chosen, strict=True)
            cells = ["not measured"] * 3
            if None not in times_s:
                hours = sum(map(mul, times_s, counts)) / 3600
                amounts = sum(times_s) / 60, hours, hours * gpu.tdp_w / 1000
                cells = [f"{float(f'{amount:.2g}'):,g}" for amount in amounts]  # more digits than the error allows
            gpus = " to ".join(map(str, sorted({min(counts), max(counts)})))
            rows.append([f"{name}: {what}" if several else what, str(len(chosen)), gpus, *cells])
    titles = ["Runs", "Number", "GPUs each", "One after the other (min)", "GPU-hours", "At most (kWh)"]
    return (
        f"{markdown(titles, rows)}\n\nExpected on {gpu.driver_name}; the queue, reading and filling in come on top. "
        f"kWh: of the GPUs alone, at the {gpu.tdp_w} W of their data sheet."
    )


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
