"""Runs, predicted: memory by simulation and what was measured beside it, time by counted work and fitted constants."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tools.plan import beside, constants, gpus, reserved, timing, whole_run
from tools.plan.constants import Fitted, Ratios
from tools.plan.gpus import Gpu
from tools.plan.memory import MIB, Terms, peak_allocated
from tools.plan.simulate import Step, steps
from tools.plan.timing import StepTime
from tools.plan.workload import Workload

MEMORY = ("peak_allocated_mib", "peak_reserved_mib", "nvidia_smi_mib")
# The largest error of allocated memory of any reference configuration is 3.1 %, but of one that had older code, and of
# DDP with compiled blocks (_late_mib).
ALLOCATED_ERROR_PERCENT = 3.5


@dataclass(frozen=True)
class Range:
    """What is expected, and an interval that would have held the reference runs of the kind."""

    least: float
    expected: float
    largest: float

    def times(self, factor: float) -> Range:
        return Range(self.least * factor, self.expected * factor, self.largest * factor)

    def per(self, amount: float) -> Range:
        """The range of `amount` per this range: a longer time is a lower speed."""
        return Range(amount / self.largest, amount / self.expected, amount / self.least)


@dataclass(frozen=True)
class Memory:
    """The memory of the fullest GPU at the peak. Attributes: terms: what the allocated bytes are, MiB."""

    terms: Terms
    allocated: Range
    reserved: Range
    nvidia_smi: Range
    beside_mib: float

    @property
    def ranges(self) -> dict[str, Range]:
        """By the names that `plan --format json` has for them."""
        return dict(zip(MEMORY, (self.allocated, self.reserved, self.nvidia_smi), strict=True))

    def verdict(self, gpu: Gpu) -> str:
        """Whether it fits that GPU."""
        return gpus.verdict(gpu, self.allocated.expected, self.beside_mib, self.nvidia_smi.largest)


@dataclass(frozen=True)
class Time:
    """The times of a run.

    Attributes:
        parts, step_s: of an optimizer step; tokens, samples: in one, of all ranks.
        run_s: of the whole job; steps: of the optimizer in it.
    """

    parts: StepTime
    step_s: Range
    run_s: Range
    steps: int
    tokens: float
    samples: float


@dataclass(frozen=True)
class Prediction:
    """What one run will take."""

    workload: Workload
    gpu: Gpu
    memory: Memory
    time: Time
    cpu: Range

    @property
    def verdict(self) -> str:
        return self.memory.verdict(self.gpu)

    @property
    def ranges(self) -> dict[str, Range]:
        """All figures, by the names that `plan --format json` has for them."""
        time, gpu_count = self.time, self.workload.strategy.world_size
        return self.memory.ranges | {
            "cpu_mib": self.cpu,
            "step_time_s": time.step_s,
            "tokens_per_second": time.step_s.per(time.tokens),
            "samples_per_second": time.step_s.per(time.samples),
            "total_runtime_s": time.run_s,
            "gpu_hours": time.run_s.times(gpu_count / 3600),
        }


def predict(workloads: Sequence[Workload], gpu: Gpu, fitted: Fitted | None = None) -> list[Prediction]:
    """Args: fitted: None: constants.json.

    Raises:
        InputError: a run that cannot be simulated, or a precision that the GPU does not have.
    """
    fitted = fitted or constants.load()
    return [
        predict_from(step, workload, gpu, fitted)
        for workload, step in zip(workloads, simulated(workloads), strict=True)
    ]


def predict_from(step: Step, workload: Workload, gpu: Gpu, fitted: Fitted) -> Prediction:
    """Args: step: simulated, one of `simulated`."""
    found, ratios = fitted.constants, fitted.ratios
    parts = timing.step_time(timing.work_of(workload, step, gpu), found["step_time_s"])
    family = workload.family
    step_s = _within(parts.total, ratios["step_time_s"], f"{parts.decided_by}, {family}", parts.decided_by)
    parameters, steps = step["parameters"], whole_run.steps_of(workload)
    other_s = whole_run.total(whole_run.other_work(workload, parameters, parts.total), found["other_s"])
    others = _within(other_s, ratios["other_s"], "all", family)
    cpu_mib = whole_run.total(whole_run.cpu_work(workload, parameters), found["cpu_mib"])
    samples = whole_run.rows_per_step(workload) * whole_run.examples_per_row(workload)
    run_s = Range(*(getattr(others, end) + steps * getattr(step_s, end) for end in ("least", "expected", "largest")))
    time = Time(parts, step_s, run_s, steps, timing.tokens_of(workload), samples)
    return Prediction(
        workload,
        gpu,
        _memory(step, workload, fitted),
        time,
        _within(cpu_mib, ratios["cpu_mib"], "all", family),
    )


def _within(expected: float, ratios: Ratios, *kinds: str) -> Range:
    """What holds the runs of each of these kinds; of all runs where there are too few of every kind."""
    found = [ratios[kind] for kind in kinds if kind in ratios] or [ratios["all"]]
    least, largest = min(one[0] for one in found), max(one[1] for one in found)
    return Range(expected * min(1, least), expected, expected * max(1, largest))


def simulated(workloads: Sequence[Workload]) -> list[Step]:
    """Each one's simulated micro-batch."""
    return steps([workload.shape for workload in workloads])


def _memory(step: Step, workload: Workload, fitted: Fitted) -> Memory:
    terms = {name: size / MIB for name, size in peak_allocated(step, workload.strategy).items()}
    expected, error = sum(terms.values()), ALLOCATED_ERROR_PERCENT / 100
    allocated = Range(expected * (1 - error), expected, expected * (1 + error) + _late_mib(step, workload))
    held_mib = reserved.reserved_mib(reserved.work_of(workload, step), fitted.constants["reserved_mib"])
    held = _within(held_mib, fitted.ratios["reserved_mib"], "all", workload.family)
    held = Range(max(expected, held.least), held.expected, max(held.largest, allocated.largest))
    least, median, largest = beside.of(fitted.beside, workload)
    nvidia_smi = Range(held.least + least, held.expected + median, held.largest + largest)
    return Memory(terms, allocated, held, nvidia_smi, least)


def _late_mib(step: Step, workload: Workload) -> float:
    """One set of fp32 gradients that the rank may hold twice for a moment: DDP with compiled blocks.

    Measured once: Llama-3.2-1B's second rank took 4,657 MiB more than its first in the second step; a set is 4,714.
    Its first rank, and both of each BLOOM, took what is expected.
    """
    return 4 * step["parameters"] / MIB if "ddp_bucket_mib" in workload.shape else 0.0
