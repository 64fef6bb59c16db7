"""How wrong the predictions are for the runs that were measured: each predicted without itself and its repeats."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from tools.errors import InputError
from tools.logs.run import Run
from tools.plan import constants, fitting, reserved, timing, whole_run
from tools.plan.constants import FORMULAS, Fitted, Ratios
from tools.plan.fitting import Constants
from tools.plan.gpus import GPUS, Gpu
from tools.plan.predict import MEMORY, Prediction, predict_from
from tools.plan.reserved import Beside
from tools.plan.simulate import Shape, steps_or_errors
from tools.plan.workload import Workload, of_run

METRICS = (*MEMORY, "cpu_mib", "step_time_s", "total_runtime_s")
TITLES = ("allocated", "reserved", "nvidia-smi", "CPU memory", "step", "whole job")  # of their columns
_REFINING_STEPS = 3  # from the constants of all runs to those without one configuration
_LEAST_RUNS = 10  # fewer say too little about the interval of their kind
_LEAST_POINTS = 30  # fewer say too little about 27 constants: then constants.json


@dataclass(frozen=True)
class Case:
    """One configuration.

    Attributes:
        each: what its completed runs measured; the whole job only of those that are as long as the first run.
        measured: the medians; empty if it ran out of memory.
    """

    family: str
    runs: list[Run]
    workload: Workload
    each: list[dict[str, float]]
    measured: dict[str, float]
    predicted: Prediction

    @property
    def ran_out(self) -> bool:
        return not self.measured

    @property
    def errors_percent(self) -> dict[str, float]:
        expected = self.predicted.ranges
        return {name: 100 * (expected[name].expected / value - 1) for name, value in self.measured.items()}


@dataclass(frozen=True)
class _Point:
    """A configuration before it is predicted. Attributes: step: simulated; each: what its completed runs measured."""

    family: str
    runs: list[Run]
    workload: Workload
    gpu: Gpu
    step: dict[str, Any]
    each: list[dict[str, float]]

    @cached_property
    def key(self) -> str:
        return self.workload.key

    @cached_property
    def measured(self) -> dict[str, float]:
        """GPU memory of the newest run: repeats are equal, but two older runs had other code. All else: medians."""
        found = {name: [one[name] for one in self.each if name in one] for name in METRICS}
        return {
            name: values[-1] if name in MEMORY else statistics.median(values)
            for name, values in found.items()
            if values
        }

    def predicted(self, fitted: Fitted) -> Prediction:
        return predict_from(self.step, self.workload, self.gpu, fitted)

    def case(self, predicted: Prediction) -> Case:
        return Case(self.family, self.runs, self.workload, self.each, self.measured, predicted)

    @cached_property
    def work(self) -> dict[str, dict[str, float]]:
        """Of each formula that a measurement can be compared with."""
        parameters = self.step["parameters"]
        found = {
            "reserved_mib": reserved.work_of(self.workload, self.step),
            "cpu_mib": whole_run.cpu_work(self.workload, parameters),
            "step_time_s": timing.work_of(self.workload, self.step, self.gpu),
        }
        if step_s := self.measured.get("step_time_s"):
            found["other_s"] = whole_run.other_work(self.workload, parameters, step_s)
        return found


def cases(runs: Sequence[Run]) -> list[Case]:
    """Of all runs that completed with GPU memory in their summary, or ended out of memory.

    Constants are fitted to the other configurations; those of constants.json where there are too few others.
    """
    points = list(_points(runs))
    if len(points) < _LEAST_POINTS:
        return [point.case(point.predicted(constants.load())) for point in points]
    fits = [_leave_one_out(points, formula) for formula in FORMULAS]
    nothing: dict[str, Ratios] = {name: {"all": (1, 1)} for name in FORMULAS}
    first = [
        Fitted(own_memory, dict(zip(FORMULAS, own, strict=True)), nothing)
        for own_memory, *own in zip(_beside_without_itself(points), *fits, strict=True)
    ]
    rough = [point.predicted(fitted) for point, fitted in zip(points, first, strict=True)]
    found = []
    for point, fitted in zip(points, first, strict=True):
        others = [(one, guess) for one, guess in zip(points, rough, strict=True) if one.key != point.key]
        prediction = point.predicted(replace(fitted, ratios=_ratios(others)))
        found.append(point.case(prediction))
    return found


def fit(runs: Sequence[Run]) -> Fitted:
    """constants.json's content, from all of them."""
    points = list(_points(runs))
    found = {formula: _fitted(_with(points, formula), formula) for formula in FORMULAS}
    guesses = [(point, case.predicted) for point, case in zip(points, cases(runs), strict=True)]
    return Fitted(reserved.fit_own(_own_memory(points)), found, _ratios(guesses))


def _groups(runs: Sequence[Run]) -> dict[tuple[str, str, Gpu], list[tuple[Workload, Run]]]:
    """By family, workload and type of GPU: runs that can be compared, but for their length."""
    groups: dict[tuple[str, str, Gpu], list[tuple[Workload, Run]]] = {}
    for run in runs:
        if run.state not in ("completed", "oom") or run.record.get("device") == "cpu":
            continue
        if run.state == "completed" and run.summary.get("peak_mem_alloc_mib") is None:
            continue
        try:
            workload = of_run(run)
        except InputError:
            continue
        groups.setdefault((run.record["exercise"], workload.key, _gpu_of(run)), []).append((workload, run))
    return groups


def shapes(runs: Sequence[Run]) -> list[Shape]:
    """What has to be simulated of them."""
    return [group[0][0].shape for group in _groups(runs).values()]


def _points(runs: Sequence[Run]) -> Iterator[_Point]:
    groups = _groups(runs)
    steps = steps_or_errors([group[0][0].shape for group in groups.values()])
    for ((family, _, gpu), group), step in zip(groups.items(), steps, strict=True):
        if isinstance(step, InputError):
            continue
        first, runs_of_it = group[0][0], [run for _, run in group]
        each = []
        for workload, run in group:
            if run.state == "completed":
                each.append(measured_of(run))
                if workload.length != first.length:
                    each[-1].pop("total_runtime_s", None)
        yield _Point(family, runs_of_it, first, gpu, step, each)


def _gpu_of(run: Run) -> Gpu:
    names = run.record.get("gpu_names") or []
    return next((gpu for gpu in GPUS.values() if names[:1] == [gpu.driver_name]), GPUS["h200"])


def measured_of(run: Run) -> dict[str, float]:
    """What one run measured, by the names of METRICS; no time of one that a profiler or timers made slower.

    A step's time is the median: an fp16 step may skip its update. A run that began again from a checkpoint loaded it
    first, and its allocator's gaps are others: only its tensors are compared.
    """
    figures, summary = run.figures, run.summary
    found = {
        "peak_allocated_mib": summary["peak_mem_alloc_mib"],
        "peak_reserved_mib": summary["peak_mem_reserved_mib"],
        "nvidia_smi_mib": figures.peak_gpu_mib,
        "cpu_mib": figures.peak_cpu_mib,
    }
    warmup = summary.get("warmup_steps") or 0
    steps = None if run.facts["timed"] or run.facts["profiled"] else run.steps
    if steps is not None and steps.step.size > warmup:
        found["step_time_s"] = statistics.median(steps.step_time_s[warmup:])
        found["total_runtime_s"] = figures.total_runtime_s
    if run.record.get("attempts"):
        del found["peak_reserved_mib"], found["nvidia_smi_mib"]
    return {name: float(value) for name, value in found.items() if value}


# ---- formulas ----


def _target(point: _Point, formula: str) -> float | None:
    """What the formula should give."""
    measured = point.measured
    if formula != "other_s":
        return measured.get("peak_reserved_mib" if formula == "reserved_mib" else formula)
    if "total_runtime_s" not in measured:
        return None
    return max(1.0, measured["total_runtime_s"] - whole_run.steps_of(point.workload) * measured["step_time_s"])


def _with(points: Sequence[_Point], formula: str) -> list[_Point]:
    return [point for point in points if _target(point, formula) is not None]


def _value(formula: str, work: Mapping[str, Any], found: Constants) -> Any:
    if formula == "step_time_s":
        return timing.step_time(work, found).total
    return reserved.reserved_mib(work, found) if formula == "reserved_mib" else whole_run.total(work, found)


def _fitted(points: Sequence[_Point], formula: str, first: Constants | None = None) -> Constants:
    import numpy as np

    if len(points) < _LEAST_POINTS:
        return constants.load().constants[formula]
    work = [point.work[formula] for point in points]
    arrays = {name: np.array([float(one[name]) for one in work]) for name in work[0]}
    targets = np.array([_target(point, formula) for point in points])
    steps = {} if first is None else {"first": first, "steps": _REFINING_STEPS}
    return fitting.fit(lambda found: _value(formula, arrays, found), targets, FORMULAS[formula], **steps)


def _leave_one_out(points: Sequence[_Point], formula: str) -> list[Constants]:
    """For each point the constants from the other configurations."""
    usable = _with(points, formula)
    every = _fitted(usable, formula)
    return [_fitted([one for one in usable if one.key != point.key], formula, every) for point in points]


def _ratios(guesses: Sequence[tuple[_Point, Prediction]]) -> dict[str, Ratios]:
    """Measured over predicted of single runs, by family and by what decides a step; 2.5th and 97.5th percentile."""
    found: dict[str, dict[str, list[float]]] = {name: {"all": []} for name in FORMULAS}

    def add(formula: str, ratio: float, *kinds: str) -> None:
        for kind in ("all", *kinds):
            found[formula].setdefault(kind, []).append(ratio)

    for point, guess in guesses:
        family, decided_by = point.workload.family, guess.time.parts.decided_by
        for measured in point.each:
            expected = {name: guess.ranges[name].expected for name in measured}
            if "step_time_s" in measured:
                ratio = measured["step_time_s"] / expected["step_time_s"]
                add("step_time_s", ratio, decided_by, f"{decided_by}, {family}")
            if "total_runtime_s" in measured:
                rest = guess.time.run_s.expected - guess.time.steps * guess.time.step_s.expected
                other_s = measured["total_runtime_s"] - guess.time.steps * measured["step_time_s"]
                add("other_s", max(1.0, other_s) / rest, family)
            for name, formula in (("cpu_mib", "cpu_mib"), ("peak_reserved_mib", "reserved_mib")):
                if name in measured:
                    add(formula, measured[name] / expected[name], family)
    return {
        name: {kind: _middle(values) for kind, values in kinds.items() if _enough(kind, values)} or {"all": (1.0, 1.0)}
        for name, kinds in found.items()
    }


def _enough(kind: str, values: list[float]) -> bool:
    return len(values) >= (2 if kind == "all" else _LEAST_RUNS)


def _middle(values: list[float]) -> tuple[float, float]:
    cuts = statistics.quantiles(values, n=40, method="inclusive")
    return round(cuts[0], 3), round(cuts[-1], 3)


# ---- CUDA's and NCCL's own memory ----


def _own_memory(points: Sequence[_Point]) -> list[tuple[Workload, float]]:
    """Not of runs that generate answers, which only nvidia-smi sees."""
    return [
        (point.workload, point.measured["nvidia_smi_mib"] - point.measured["peak_reserved_mib"])
        for point in points
        if "nvidia_smi_mib" in point.measured and not point.workload.length.generated
    ]


def _beside_without_itself(points: Sequence[_Point]) -> list[Beside]:
    measured = _own_memory(points)
    others = ([one for one in measured if one[0].key != point.key] for point in points)
    return [reserved.fit_own(found) if found else constants.load().beside for found in others]


# ---- the table ----


def families(found: Sequence[Case]) -> dict[str, dict[str, dict[str, float]]]:
    """Mean and worst absolute error in percent of each family's metrics, over configurations."""
    answer: dict[str, dict[str, dict[str, float]]] = {}
    for family in sorted({case.family for case in found}):
        answer[family] = {}
        for metric in METRICS:
            own = [case for case in found if case.family == family and metric in case.measured]
            errors = [abs(case.errors_percent[metric]) for case in own]
            if errors:
                answer[family][metric] = {
                    "mean_error_percent": round(statistics.fmean(errors), 2),
                    "worst_error_percent": round(max(errors), 2),
                    "runs": sum(len(case.runs) for case in own),
                }
    return answer
