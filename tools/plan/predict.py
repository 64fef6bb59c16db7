"""Predict runs: memory by simulation and measured overheads, time by counted work and fitted constants."""

from dataclasses import dataclass, replace
from math import ceil
from typing import Any, NamedTuple, Self

from tools.plan import constants, memory, timing
from tools.plan.constants import Fitted, total
from tools.plan.gpus import Gpu
from tools.plan.memory import Terms
from tools.plan.simulate import SimulatedStep, step_of
from tools.plan.timing import StepTime
from tools.plan.workload import Workload

# The margin of "fits", beside allocated memory. The largest error of any reference configuration is 3.1 %, but of one
# that had older code, and of DDP with compiled blocks (_gpu_memory). Of our runs none failed that needed less than the
# GPU has, and 21 completed that needed 70 to 93 % of it, which PyTorch's reserve or nvidia-smi's figure may exceed.
ALLOCATED_ERROR_PERCENT = 3.5
# The most that a reference run had; nodes were emulated.
MEASURED_LENGTH, MEASURED_GPUS, MEASURED_PARAMETERS = 4_096, 4, 8.2e9
# Mean errors in documents/PLANNER.md: of a step on cards that we ran; of other projects' tables.
SAME_HOST_ERROR, OTHER_CARD_ERROR = 0.1, 0.2
# SLURM tells a job so long before its limit that it ends: #SBATCH --signal of the launchers.
_NOTICE_MIN = 2


class Range(NamedTuple):
    """The expected value, and an interval that covers the reference runs of the kind."""

    least: float
    expected: float
    largest: float

    def times(self, factor: float) -> Self:
        return Range(*(factor * value for value in self))

    def per(self, amount: float) -> Self:
        """The amount divided by this range: a longer time is a lower speed."""
        return Range(*(amount / value for value in reversed(self)))

    def error_percent(self, measured: float) -> float:
        return 100 * (self.expected / measured - 1)

    def holds(self, measured: float) -> bool:
        return self.least <= measured <= self.largest


@dataclass(frozen=True)
class Prediction:
    """The needs of one run."""

    workload: Workload
    gpu: Gpu
    terms: Terms  # allocated on the fullest GPU at its peak, MiB
    context_mib: float  # CUDA's own memory, at least
    parts: StepTime  # of an optimizer step
    ranges: dict[str, Range]  # all figures, by the names that `plan --format json` has for them
    loading_mib: float  # of a node's CPU memory, all weights before the training
    whole_mib: float  # of a GPU, all weights before they are sharded, cast or quantized
    kinds: dict[str, tuple[str, ...]]  # by formula, whose runs' errors are its interval
    work: dict[str, dict[str, float]]  # by formula, what its constants are multiplied with
    parameters: int  # of the model

    # CPU memory that a node must have, in training or while it loads the weights.
    least_cpu_gib = property(lambda self: max(self.ranges["cpu_mib"].expected, self.loading_mib) / 1024)
    needed_mib = property(lambda self: self.needed.expected)
    # Whether PyTorch's reserve may come to a GiB from the GPU's end: then less memory is worth some time.
    tight = property(lambda self: self.ranges["nvidia_smi_mib"].largest > self.gpu.memory_mib - 1024)

    @property
    def surely_faster(self) -> float:
        """The share by which a row must be faster than another one if both are as far off as usual."""
        error = SAME_HOST_ERROR if self.gpu.measured else OTHER_CARD_ERROR
        return (1 + error) / (1 - error) - 1

    @property
    def needed(self) -> Range:
        """Of the fullest GPU, in training or before: the tensors and CUDA's context (MiB).

        PyTorch gives back its unused reserve before it fails.
        """
        tensors_mib = self.ranges["peak_allocated_mib"]
        return Range(*(max(value, self.whole_mib) + self.context_mib for value in tensors_mib))

    @property
    def as_json(self) -> dict[str, Any]:
        """All figures with their digits, what they are made of, and what they say."""
        found: dict[str, Any] = {}
        for name, figure in self.ranges.items():
            found[name] = {end: float(f"{value:.6g}") for end, value in figure._asdict().items()}
        return found | {
            "optimizer_steps": self.workload.steps,
            "steps_per_epoch": self.workload.steps_per_epoch,
            "needed_mib": round(self.needed_mib),
            "least_cpu_gib": round(self.least_cpu_gib, 1),
            "terms_mib": {name: round(size, 1) for name, size in self.terms.items()},
            "step_parts_s": {name: float(f"{value:.4g}") for name, value in vars(self.parts).items()},
            "limited_by": self.parts.decided_by,
            "verdict": self.verdict,
            "reason": self.reason,
            "extrapolates": self.extrapolates,
        }

    @property
    def limit_min(self) -> int:
        """The time limit that a job needs by the largest prediction, with SLURM's notice before it."""
        return ceil(self.ranges["total_runtime_s"].largest / 60) + _NOTICE_MIN

    @property
    def limit(self) -> str:
        """The memory that is too small: "GPU", "CPU" or ""."""
        if self.needed_mib > self.gpu.memory_mib:
            return "GPU"
        return "CPU" if self.least_cpu_gib > self.gpu.node_gib else ""

    @property
    def verdict(self) -> str:
        """One of: fits, close, does not fit. A run is close if the margin decides: runs of ours failed beyond it."""
        if self.limit:
            return "does not fit"
        return "close" if self.needed.largest > self.gpu.memory_mib else "fits"

    @property
    def reason(self) -> str:
        """The verdict, and which memory is too small."""
        if self.limit == "GPU":
            return f"{self.verdict}: needs {self.needed_mib:,.0f} of {self.gpu.memory_mib:,} MiB"
        if self.limit == "CPU":
            return f"{self.verdict}: needs {self.least_cpu_gib:,.0f} of a node's {self.gpu.node_gib:,.0f} GiB"
        return self.verdict

    @property
    def extrapolates(self) -> list[str]:
        """What no reference run had: the intervals are those of smaller ones."""
        workload, strategy = self.workload, self.workload.strategy
        facts = {
            f"rows of more than {MEASURED_LENGTH:,} tokens": workload.row_length > MEASURED_LENGTH,
            f"more than {MEASURED_GPUS} GPUs": strategy.world_size > MEASURED_GPUS,
            "several real nodes": workload.nodes > 1,
            f"more than {MEASURED_PARAMETERS / 1e9:g} billion parameters": self.parameters > MEASURED_PARAMETERS,
        }
        return [text for text, holds in facts.items() if holds]

    @property
    def sort_key(self) -> tuple[int, float, float]:
        """Class, step time (s), allocated MiB. Lower sorts first; of those that do not fit, the one nearest to it."""
        kind = ("fits", "close", "does not fit").index(self.verdict)
        allocated_mib = self.ranges["peak_allocated_mib"].expected
        return kind, allocated_mib if kind == 2 else self.ranges["step_time_s"].expected, allocated_mib


def predict(workload: Workload, gpu: Gpu) -> Prediction:
    """By constants.json. Raises InputError where the step cannot be simulated or the GPU lacks the precision."""
    return predict_from(step_of(workload.shape), workload, gpu, constants.load())


def predict_from(step: SimulatedStep, workload: Workload, gpu: Gpu, fitted: Fitted) -> Prediction:
    """Args: step: the simulated micro-batch of the workload's shape."""
    whole = step
    if workload.layout:
        step = workload.layout.on_rank(whole)
    terms, work, before_mib = memory.counted(workload, step, whole)
    work["step_time_s"] = timing.work_of(workload, step, gpu)
    parts = timing.step_time(work["step_time_s"], fitted.constants["step_time_s"])
    if workload.layout:
        parts = replace(parts, total=parts.total / (1 - workload.layout.bubble))
    work["other_s"] = timing.other_work(workload, whole, parts.total)
    kinds = {
        "reserved_mib": ("replayed",) if "replayed" in work["reserved_mib"] else ("all", workload.family),
        "step_time_s": (parts.decided_by, f"{parts.decided_by}, {workload.family}"),
        **dict.fromkeys(("cpu_mib", "other_s"), ("all", workload.family)),
    }

    def interval(formula: str) -> Range:
        """The one that covers the runs of each kind; of all runs where every kind has too few."""
        ratios = fitted.ratios[formula]
        found = [ratios[kind] for kind in kinds[formula] if kind in ratios] or [ratios.get("all", (1, 1))]
        expected = parts.total if formula == "step_time_s" else total(work[formula], fitted.constants[formula])
        ends = min(1, *(least for least, _ in found)), max(1, *(largest for _, largest in found))
        return Range(expected * ends[0], expected, expected * ends[1])

    allocated_mib, context = sum(terms.values()), memory.cuda_context(fitted.cuda_context, workload)
    error = ALLOCATED_ERROR_PERCENT / 100
    allocated = Range(allocated_mib * (1 - error), allocated_mib, allocated_mib * (1 + error))
    held = interval("reserved_mib")
    held = Range(max(allocated_mib, held.least), held.expected, max(held.largest, allocated.largest))
    # PyTorch gives its reserve back before it fails, so nvidia-smi shows no more than there is.
    most = max(gpu.memory_mib, allocated_mib + context[0])
    in_all = Range(*map(sum, zip(held, context, strict=True)))
    of_gpu = [Range(*(min(most, value) for value in found)) for found in (allocated, held, in_all)]
    step_s = interval("step_time_s")
    run_s = Range(*(other + workload.steps * one for other, one in zip(interval("other_s"), step_s, strict=True)))
    ranges = dict(zip(("peak_allocated_mib", "peak_reserved_mib", "nvidia_smi_mib"), of_gpu, strict=True)) | {
        "cpu_mib": interval("cpu_mib"),
        "step_time_s": step_s,
        "tokens_per_second": step_s.per(workload.tokens_per_step),
        "samples_per_second": step_s.per(workload.rows_per_step * workload.examples_per_row),
        "total_runtime_s": run_s,
        "gpu_hours": run_s.times(workload.strategy.world_size / 3600),
    }
    return Prediction(workload, gpu, terms, context[0], parts, ranges, *before_mib, kinds, work, whole["parameters"])
