"""How wrong the predictions are for the runs that were measured: each predicted without itself and its repeats."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from tools.errors import InputError
from tools.logs.figures import figure
from tools.logs.run import Run
from tools.plan import constants, memory, timing
from tools.plan.constants import FORMULAS, Constants, CudaContext, Fitted, Ratios
from tools.plan.gpus import GPUS, Gpu
from tools.plan.predict import Prediction, predict_from
from tools.plan.simulate import Shape, Step, steps
from tools.plan.workload import Workload, of_run

MEMORY = ("peak_allocated_mib", "peak_reserved_mib", "nvidia_smi_mib")
METRICS = (*MEMORY, "cpu_mib", "step_time_s", "total_runtime_s")
_REFINING_STEPS = 3  # from the constants of all runs to those without one configuration
_LEAST_RUNS = 10  # fewer say too little about the interval of their kind
_LEAST_POINTS = 30  # fewer say too little about 27 constants: then constants.json


@dataclass(frozen=True)
class Case:
    """One configuration.

    Attributes:
        step: simulated.
        each: what its completed runs measured; the whole job only of those that are as long as the first run.
        predicted: None until it is.
    """

    family: str
    runs: list[Run]
    workload: Workload
    gpu: Gpu
    step: Step
    each: list[dict[str, float]]
    predicted: Prediction | None = None

    @cached_property
    def measured(self) -> dict[str, float]:
        """GPU memory of the newest run: repeats are equal, but two older runs had other code. All else: medians.

        Empty if it ran out of memory.
        """
        found = {name: [one[name] for one in self.each if name in one] for name in METRICS}
        return {
            name: values[-1] if name in MEMORY else statistics.median(values)
            for name, values in found.items()
            if values
        }

    @property
    def ran_out(self) -> bool:
        return not self.measured

    @property
    def errors_percent(self) -> dict[str, float]:
        return {name: self.predicted.ranges[name].error_percent(value) for name, value in self.measured.items()}

    def with_prediction(self, fitted: Fitted) -> Case:
        return replace(self, predicted=predict_from(self.step, self.workload, self.gpu, fitted))

    @cached_property
    def work(self) -> dict[str, dict[str, float]]:
        """The work of each formula that a measurement can be compared with."""
        parameters = memory.trained(self.step)["parameters"]
        found = {
            "reserved_mib": memory.reserved_work(self.workload, self.step),
            "cpu_mib": memory.cpu_work(self.workload, parameters),
            "step_time_s": timing.work_of(self.workload, self.step, self.gpu),
        }
        if step_s := self.measured.get("step_time_s"):
            found["other_s"] = timing.other_work(self.workload, parameters, step_s)
        return found


def target(formula: str, figures: dict[str, float], workload: Workload) -> float | None:
    """What the formula should give, from figures by the names of METRICS; None where they lack it."""
    if formula != "other_s":
        return figures.get("peak_reserved_mib" if formula == "reserved_mib" else formula)
    if "total_runtime_s" not in figures:
        return None
    return max(1.0, figures["total_runtime_s"] - workload.steps * figures["step_time_s"])


def cases(runs: Sequence[Run]) -> list[Case]:
    """The cases of all runs that completed with GPU memory in their summary, or ended out of memory.

    Constants are fitted to the other configurations; those of constants.json where there are too few others.
    """
    points = _configurations(runs)
    if len(points) < _LEAST_POINTS:
        return [point.with_prediction(constants.load()) for point in points]
    every = {formula: _fitted(points, formula) for formula in FORMULAS}
    nothing: dict[str, Ratios] = {name: {"all": (1, 1)} for name in FORMULAS}
    fitted = []
    for point in points:
        others = _others(points, point)
        own = {formula: _fitted(others, formula, every[formula]) for formula in FORMULAS}
        fitted.append(Fitted(_cuda_context(others), own, nothing))
    rough = [point.with_prediction(own) for point, own in zip(points, fitted, strict=True)]
    return [
        point.with_prediction(replace(own, ratios=_ratios(_others(rough, point))))
        for point, own in zip(points, fitted, strict=True)
    ]


def fit(runs: Sequence[Run]) -> Fitted:
    """constants.json's content, from all of them."""
    found = cases(runs)
    fits = {formula: _fitted(found, formula) for formula in FORMULAS}
    return Fitted(_cuda_context(found), fits, _ratios(found))


def shapes(runs: Sequence[Run]) -> list[Shape]:
    """What has to be simulated of them."""
    return [group[0][0].shape for group in _groups(runs).values()]


def _groups(runs: Sequence[Run]) -> dict[tuple[str, str, Gpu], list[tuple[Workload, Run]]]:
    """By family, workload and type of GPU: runs that can be compared, but for their length."""
    groups: dict[tuple[str, str, Gpu], list[tuple[Workload, Run]]] = {}
    for run in runs:
        if run.state not in ("completed", "oom") or run.record.device == "cpu" or run.record.shared_gpu:
            continue
        if run.state == "completed" and run.summary.get("peak_mem_alloc_mib") is None:
            continue
        try:
            workload = of_run(run)
        except InputError:
            continue
        names = run.record.gpu_names
        gpu = next((gpu for gpu in GPUS.values() if names[:1] == [gpu.driver_name]), GPUS["h200"])
        groups.setdefault((run.record.exercise, workload.key, gpu), []).append((workload, run))
    return groups


def _configurations(runs: Sequence[Run]) -> list[Case]:
    """Not predicted yet; without those that cannot be simulated."""
    groups = _groups(runs)
    found = []
    simulated = steps([group[0][0].shape for group in groups.values()])
    for ((family, _, gpu), group), step in zip(groups.items(), simulated, strict=True):
        if isinstance(step, InputError):
            continue
        first = group[0][0]
        each = []
        for workload, run in group:
            if run.state == "completed":
                each.append(measured_of(run))
                if workload != first:
                    each[-1].pop("total_runtime_s", None)
        found.append(Case(family, [run for _, run in group], first, gpu, step, each))
    return found


def measured_of(run: Run) -> dict[str, float]:
    """What one run measured, by the names of METRICS; no time of one that a profiler or timers made slower.

    A step's time is the median: an fp16 step may skip its update. A run that began again from a checkpoint loaded it
    first, and its allocator's gaps are others: only its tensors are compared.
    """
    summary = run.summary
    found = {
        "peak_allocated_mib": summary["peak_mem_alloc_mib"],
        "peak_reserved_mib": summary["peak_mem_reserved_mib"],
        "nvidia_smi_mib": figure(run, "peak_gpu_mib"),
        "cpu_mib": figure(run, "peak_cpu_mib"),
    }
    warmup = summary.get("warmup_steps") or 0
    steps = None if run.timed or run.profiled else run.steps
    if steps is not None and steps.step.size > warmup:
        found["step_time_s"] = statistics.median(steps.step_time_s[warmup:])
        found["total_runtime_s"] = figure(run, "total_runtime_s")
    if run.record.attempts:
        del found["peak_reserved_mib"], found["nvidia_smi_mib"]
    return {name: float(value) for name, value in found.items() if value}


# ---- the fit ----


def _fitted(points: Sequence[Case], formula: str, first: Constants | None = None) -> Constants:
    import numpy as np

    wanted = [(point, target(formula, point.measured, point.workload)) for point in points]
    points = [point for point, value in wanted if value is not None]
    if len(points) < _LEAST_POINTS:
        return constants.load().constants[formula]
    work = [point.work[formula] for point in points]
    arrays = {name: np.array([float(one[name]) for one in work]) for name in work[0]}
    targets = np.array([value for _, value in wanted if value is not None])

    def value(found: Constants) -> Any:
        return timing.step_time(arrays, found).total if formula == "step_time_s" else constants.total(arrays, found)

    steps = {} if first is None else {"first": first, "steps": _REFINING_STEPS}
    return constants.fit(value, targets, FORMULAS[formula], **steps)


def _others(points: Sequence[Case], point: Case) -> list[Case]:
    """The other configurations."""
    return [one for one in points if one.workload.key != point.workload.key]


def _ratios(guesses: Sequence[Case]) -> dict[str, Ratios]:
    """Measured over predicted of single runs, by family and by what decides a step; 2.5th and 97.5th percentile."""
    found: dict[str, dict[str, list[float]]] = {name: {"all": []} for name in FORMULAS}
    for guess in guesses:
        workload, decided_by = guess.workload, guess.predicted.parts.decided_by
        expected = {name: one.expected for name, one in guess.predicted.ranges.items()}
        for formula, ratios in found.items():
            own = (decided_by, f"{decided_by}, {workload.family}") if formula == "step_time_s" else (workload.family,)
            predicted = target(formula, expected, workload)
            every = [measured / predicted for one in guess.each if (measured := target(formula, one, workload))]
            for kind in ("all", *own):
                ratios.setdefault(kind, []).extend(every)
    return {
        name: {
            kind: _middle(values)
            for kind, values in kinds.items()
            if len(values) >= (2 if kind == "all" else _LEAST_RUNS)
        }
        or {"all": (1.0, 1.0)}
        for name, kinds in found.items()
    }


def _middle(values: list[float]) -> tuple[float, float]:
    cuts = statistics.quantiles(values, n=40, method="inclusive")
    return round(cuts[0], 3), round(cuts[-1], 3)


def _cuda_context(points: Sequence[Case]) -> CudaContext:
    """CUDA's and NCCL's memory; not of runs that generate answers, which only nvidia-smi sees."""
    found = [
        (point.workload, point.measured["nvidia_smi_mib"] - point.measured["peak_reserved_mib"])
        for point in points
        if "nvidia_smi_mib" in point.measured and not point.workload.generated
    ]
    return memory.fit_cuda_context(found) if found else constants.load().cuda_context
