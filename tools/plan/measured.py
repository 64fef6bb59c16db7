"""Measured runs: constants are fitted to them, and each configuration is predicted without itself and its repeats."""

import statistics
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

from tools.errors import InputError
from tools.logs.figures import value_of
from tools.logs.run import Run
from tools.plan import constants, memory, timing
from tools.plan.constants import FORMULAS, Constants, CudaContext, Fitted, Ratios
from tools.plan.gpus import GPUS, Gpu
from tools.plan.predict import Prediction, predict_from
from tools.plan.simulate import Shape, step_of, steps
from tools.plan.workload import Workload
from tools.plan.workload_of import of_run

MEMORY = ("peak_allocated_mib", "peak_reserved_mib", "nvidia_smi_mib")
# With the titles of their columns.
METRICS = dict(zip(MEMORY, ("allocated", "reserved", "nvidia-smi"), strict=True))
METRICS |= {"cpu_mib": "CPU memory", "step_time_s": "step", "total_runtime_s": "whole job"}
# How often a run counts in the fit that needed more than its formula says: out of memory costs more than a margin.
_TOO_LOW = {"reserved_mib": 6}
# CUDA's own on an H100 or H200 without NCCL: 751 or 753 MiB in 62 configurations, no less in any.
_BARE_CONTEXT_MIB = 750
_LEAST_RUNS = 10  # fewer say too little about the interval of their kind
_LEAST_POINTS = 30  # fewer say too little about 27 constants: then constants.json


@dataclass(frozen=True)
class Case:
    """One configuration."""

    runs: list[Run]
    workload: Workload
    gpu: Gpu
    each: list[dict[str, float]]  # of the completed runs; the whole job only of those as long as the first one
    predicted: Prediction

    ran_out = property(lambda self: not self.measured)

    @cached_property
    def measured(self) -> dict[str, float]:
        """GPU memory of the newest run: repeats are equal, but two older runs had other code. All else: medians.

        Empty if it ran out of memory.
        """
        values = {name: [one[name] for one in self.each if name in one] for name in METRICS}
        return {name: own[-1] if name in MEMORY else statistics.median(own) for name, own in values.items() if own}

    def error_percent(self, metric: str) -> float:
        return self.predicted.ranges[metric].error_percent(self.measured[metric])

    def with_prediction(self, fitted: Fitted) -> Self:
        step = step_of(self.workload.shape)
        return replace(self, predicted=predict_from(step, self.workload, self.gpu, fitted))

    def work(self, formula: str) -> dict[str, float]:
        """What the formula's constants are multiplied with; an evaluation's time is a part of the measured step's."""
        found = self.predicted.work[formula]
        if formula != "other_s":
            return found
        slower = self.measured["step_time_s"] / self.predicted.ranges["step_time_s"].expected
        return found | {"evaluated": found["evaluated"] * slower}


def target(formula: str, figures: dict[str, float], workload: Workload) -> float | None:
    """The value that the formula should give, from figures by the names of METRICS; None without a figure."""
    if formula != "other_s":
        return figures.get("peak_reserved_mib" if formula == "reserved_mib" else formula)
    if "total_runtime_s" not in figures:
        return None
    return max(1.0, figures["total_runtime_s"] - workload.steps * figures["step_time_s"])


def cases(runs: Sequence[Run]) -> list[Case]:
    """The cases of all runs that completed with GPU memory in their summary, or ended out of memory.

    Constants are fitted to the other configurations; those of constants.json where there are too few others.
    """
    groups = _configurations(runs)
    found = zip(groups, steps([workload.shape for _, workload, *_ in groups]), strict=True)
    usual = constants.load()
    points = [Case(*own, predict_from(step, *own[1:3], usual)) for own, step in found if "error" not in step]
    if len(points) < _LEAST_POINTS:
        return points
    every = {formula: _fitted(points, formula) for formula in FORMULAS}
    nothing: dict[str, Ratios] = {formula: {} for formula in FORMULAS}
    rough, fits = [], []
    for point in points:
        others = _others(points, point)
        own = {formula: _fitted(others, formula, every[formula]) for formula in FORMULAS}
        fits.append(Fitted(_cuda_context(others), own, nothing))
        rough.append(point.with_prediction(fits[-1]))
    ratios = [_ratios(_others(rough, one)) for one in rough]
    return [one.with_prediction(replace(own, ratios=its)) for one, own, its in zip(rough, fits, ratios, strict=True)]


def fit(runs: Sequence[Run]) -> Fitted:
    """constants.json's content, from all of them."""
    found = cases(runs)
    fits = {formula: _fitted(found, formula) for formula in FORMULAS}
    ways = sorted({case.workload.way for case in found if case.measured})
    return Fitted(_cuda_context(found), fits, _ratios(found), tuple(ways))


def shapes(runs: Sequence[Run]) -> list[Shape]:
    """The shapes to simulate for these runs."""
    return [workload.shape for _, workload, *_ in _configurations(runs)]


def _configurations(runs: Sequence[Run]) -> list[tuple[list[Run], Workload, Gpu, list[dict[str, float]]]]:
    """Comparable runs by exercise, workload and type of GPU, whose lengths may differ: of each what a Case has."""
    groups: dict[tuple[str, str, Gpu], list[tuple[Workload, Run]]] = defaultdict(list)
    for run in runs:
        record = run.record
        if run.state not in ("completed", "oom") or record.device == "cpu":
            continue
        if record.shared_gpu or record.own_environment:
            continue
        if run.state == "completed" and run.summary.get("peak_mem_alloc_mib") is None:
            continue
        with suppress(InputError):
            workload = of_run(run)
            names = record.gpu_names
            gpu = next((gpu for gpu in GPUS.values() if names[:1] == [gpu.driver_name]), GPUS["h200"])
            groups[record.exercise, workload.key, gpu].append((workload, run))
    found = []
    for (*_, gpu), group in groups.items():
        first, each = group[0][0], []
        for workload, run in group:
            if run.state == "completed":
                each.append(measured_of(run))
                if workload != first:
                    each[-1].pop("total_runtime_s", None)
        found.append(([run for _, run in group], first, gpu, each))
    return found


def measured_of(run: Run) -> dict[str, float]:
    """A run's measurements by the names of METRICS, without times if a profiler or timers slowed it down.

    A step's time is the median, because an fp16 step may skip its update. A resumed run loads a checkpoint first, which
    changes the allocator's gaps: only its tensors are compared.
    """
    summary = run.summary
    found = {"peak_allocated_mib": summary["peak_mem_alloc_mib"]}
    # Nodes that were emulated on one machine may have one log of all processes there.
    logs = sum(name.startswith("cpu_memory") for name in run.files)
    if cpu_mib := value_of(run, "peak_cpu_mib"):
        found["cpu_mib"] = cpu_mib / ((run.record.nodes or 1) if logs == 1 else 1)
    if not run.record.attempts:
        found["peak_reserved_mib"] = summary["peak_mem_reserved_mib"]
        found["nvidia_smi_mib"] = value_of(run, "peak_gpu_mib")
    warmup = summary.get("warmup_steps") or 0
    steps = None if run.timed or run.profiled else run.steps
    if steps and len(steps.step) > warmup:
        found["step_time_s"] = statistics.median(steps.step_time_s[warmup:])
        found["total_runtime_s"] = value_of(run, "total_runtime_s")
    return {name: float(value) for name, value in found.items() if value}


# ---- the fit ----


def _fitted(points: Sequence[Case], formula: str, first: Constants | None = None) -> Constants:
    import numpy as np

    found = [(point, target(formula, point.measured, point.workload)) for point in points]
    found = [(point.work(formula), value) for point, value in found if value is not None]
    if len(found) < _LEAST_POINTS:
        return constants.load().constants[formula]
    work, targets = zip(*found, strict=True)
    names = dict.fromkeys(name for one in work for name in one)
    arrays = {name: np.array([float(one.get(name, 0)) for one in work]) for name in names}

    def value(found: Constants) -> Any:
        return timing.step_time(arrays, found).total if formula == "step_time_s" else constants.total(arrays, found)

    return constants.fit(value, np.array(targets), FORMULAS[formula], first, _TOO_LOW.get(formula, 1))


def _others(points: Sequence[Case], point: Case) -> list[Case]:
    return [one for one in points if one.workload.key != point.workload.key]


def _ratios(guesses: Sequence[Case]) -> dict[str, Ratios]:
    """Measured over predicted of single runs, by kind (kinds_of); 2.5th and 97.5th percentile."""
    found: dict[str, dict[str, list[float]]] = {formula: defaultdict(list) for formula in FORMULAS}
    for guess in guesses:
        expected = {name: one.expected for name, one in guess.predicted.ranges.items()}
        for formula, ratios in found.items():
            predicted = target(formula, expected, guess.workload)
            measured = [target(formula, one, guess.workload) for one in guess.each]
            for kind in dict.fromkeys(("all", *guess.predicted.kinds[formula])):
                ratios[kind] += [value / predicted for value in measured if value]
    return {
        formula: {kind: _ends(values) for kind, values in ratios.items() if len(values) >= _LEAST_RUNS}
        for formula, ratios in found.items()
    }


def _ends(ratios: Sequence[float]) -> tuple[float, float]:
    least, *_, largest = statistics.quantiles(ratios, n=40, method="inclusive")
    return round(least, 3), round(largest, 3)


def _cuda_context(points: Sequence[Case]) -> CudaContext:
    """CUDA's and NCCL's memory by group: least, median and largest, measured and not computed.

    Without runs that generate answers, whose memory only nvidia-smi sees.
    """
    groups: dict[str, list[float]] = defaultdict(list)
    for point in points:
        if "nvidia_smi_mib" in point.measured and not point.runs[-1].settings.get("generate_size"):
            mib = point.measured["nvidia_smi_mib"] - point.measured["peak_reserved_mib"]
            if mib >= _BARE_CONTEXT_MIB:  # else nvidia-smi, once a second, has missed the peak
                for name in memory.context_groups(point.workload):
                    groups[name].append(mib)
    found = {
        name: (round(min(values)), round(statistics.median(values)), round(max(values)))
        for name, values in sorted(groups.items())
    }
    return found or constants.load().cuda_context
