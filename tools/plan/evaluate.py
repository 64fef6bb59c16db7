"""How wrong the predictions are for the runs that were measured: each predicted without itself and its repeats."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from tools.errors import InputError
from tools.logs.run import Run
from tools.plan import overhead
from tools.plan.overhead import Measured
from tools.plan.predict import METRICS, Memory, allocated_terms, beside
from tools.plan.workload import Workload, of_run


@dataclass(frozen=True)
class Case:
    """One configuration: its runs, what they measured (medians; none of a run out of memory), what was predicted."""

    family: str
    runs: list[Run]
    workload: Workload
    measured: dict[str, float]
    predicted: Memory

    @property
    def ran_out(self) -> bool:
        return not self.measured

    @property
    def errors_percent(self) -> dict[str, float]:
        expected = self.predicted.ranges
        return {name: 100 * (expected[name].expected / value - 1) for name, value in self.measured.items()}


def cases(runs: Sequence[Run]) -> list[Case]:
    """Of all runs that completed with GPU memory in their summary, or ended out of memory.

    What is beside the allocated tensors is fitted to the other configurations; overhead.json if there is no other.
    """
    groups: dict[tuple[str, str], tuple[Workload, list[Run]]] = {}
    for run in runs:
        if run.state not in ("completed", "oom") or run.record.get("device") == "cpu":
            continue
        if run.state == "completed" and run.summary.get("peak_mem_alloc_mib") is None:
            continue
        try:
            workload = of_run(run)
        except InputError:
            continue
        groups.setdefault((run.record["exercise"], workload.key), (workload, []))[1].append(run)
    terms = allocated_terms([workload for workload, _ in groups.values()])
    predicted = dict(zip(groups, terms, strict=True))
    measured = {key: _measured(workload, group) for key, (workload, group) in groups.items()}
    points = [
        _point(workload, sum(predicted[key].values()), measured[key])
        for key, (workload, _) in groups.items()
        if measured[key]
    ]
    found = []
    for key, (workload, group) in groups.items():
        others = [point for point in points if point.key != key[1]]
        fitted = overhead.fit(others) if others else overhead.load()
        found.append(Case(key[0], group, workload, measured[key], beside(predicted[key], workload, fitted)))
    return found


def fit(found: Sequence[Case]) -> overhead.Fitted:
    """overhead.json's content, from all of them."""
    return overhead.fit(
        _point(case.workload, case.predicted.allocated.expected, case.measured) for case in found if not case.ran_out
    )


def _point(workload: Workload, allocated_mib: float, measured: dict[str, float]) -> Measured:
    """Args: allocated_mib: predicted."""
    strategy = workload.strategy
    beside_allocated = (measured[name] for name in METRICS[1:])
    return Measured(workload.key, strategy.method, strategy.world_size > 1, allocated_mib, *beside_allocated)


def _measured(workload: Workload, runs: Sequence[Run]) -> dict[str, float]:
    done = [run for run in runs if run.state == "completed"]
    if not done:
        return {}
    values = {
        "peak_allocated_mib": [run.summary["peak_mem_alloc_mib"] for run in done],
        "peak_reserved_mib": [run.summary["peak_mem_reserved_mib"] for run in done],
        "nvidia_smi_mib": [run.figures.peak_gpu_mib for run in done if run.figures.peak_gpu_mib],
    }
    return {name: statistics.median(all_of) for name, all_of in values.items() if all_of}


def families(found: Sequence[Case]) -> dict[str, dict[str, dict[str, float]]]:
    """Mean and worst absolute error in percent of each family's metrics, over configurations."""
    answer: dict[str, dict[str, dict[str, float]]] = {}
    for family in sorted({case.family for case in found}):
        answer[family] = {}
        for metric in METRICS:
            errors = [abs(case.errors_percent[metric]) for case in found if case.family == family and case.measured]
            if errors:
                answer[family][metric] = {
                    "mean_error_percent": round(statistics.fmean(errors), 2),
                    "worst_error_percent": round(max(errors), 2),
                    "runs": sum(len(case.runs) for case in found if case.family == family and case.measured),
                }
    return answer
