"""Runs, predicted: memory by simulation and what was measured beside it, time by counted work and fitted constants."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tools.plan import constants, reserved, timing, whole_run
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
# As much of a GPU's memory must be left by the highest that nvidia-smi may show.
CLOSE_MIB = 1_024
# Of a prediction's cells.
TITLES = (
    *("allocated (MiB)", "nvidia-smi (MiB)", "CPU per node (GiB)", "step (ms)", "tokens/s", "examples/s"),
    *("job (min)", "GPU-hours"),
)


@dataclass(frozen=True)
class Range:
    """What is expected, and an interval that would have held the reference runs of the kind."""

    least: float
    expected: float
    largest: float

    def text(self, decimals: int = 0) -> str:
        least, expected, largest = (f"{value:,.{decimals}f}" for value in (self.least, self.expected, self.largest))
        return f"{expected} ({least} to {largest})"

    @property
    def rounded(self) -> dict[str, float]:
        """With six digits."""
        return {name: float(f"{value:.6g}") for name, value in vars(self).items()}

    def times(self, factor: float) -> Range:
        return Range(self.least * factor, self.expected * factor, self.largest * factor)

    def per(self, amount: float) -> Range:
        """Of an amount per this: a longer time is a lower speed."""
        return Range(amount / self.largest, amount / self.expected, amount / self.least)


@dataclass(frozen=True)
class Memory:
    """Of the fullest GPU, at the peak. Attributes: terms: what the allocated bytes are, MiB."""

    terms: Terms
    allocated: Range
    reserved: Range
    nvidia_smi: Range
    beside_mib: float

    @property
    def ranges(self) -> dict[str, Range]:
        """By the names that `plan --format json` has for them."""
        return dict(zip(MEMORY, (self.allocated, self.reserved, self.nvidia_smi), strict=True))

    @property
    def least_mib(self) -> float:
        """What it must have: tensors, and CUDA's context beside them. PyTorch returns what it only holds in reserve
        before it fails, so that alone makes a run close, not impossible."""
        return self.allocated.expected + self.beside_mib


@dataclass(frozen=True)
class Time:
    """Of a run.

    Attributes:
        parts, step_s: of an optimizer step; tokens, samples: in one, of all ranks.
        run_s: of the whole job; steps: of the optimizer in it; steps_per_epoch: however many of them run.
    """

    parts: StepTime
    step_s: Range
    run_s: Range
    steps: int
    steps_per_epoch: int
    tokens: float
    samples: float


@dataclass(frozen=True)
class Prediction:
    """Of one run. Attributes: loading_mib: of a node's CPU memory, pretrained weights before the training."""

    workload: Workload
    gpu: Gpu
    memory: Memory
    time: Time
    cpu: Range
    loading_mib: float

    @property
    def figures(self) -> dict[str, dict[str, float]]:
        """The same with six digits."""
        return {name: found.rounded for name, found in self.ranges.items()}

    @property
    def cells(self) -> list[str]:
        """Of a table with the columns TITLES."""
        found = self.ranges
        return [
            found["peak_allocated_mib"].text(),
            found["nvidia_smi_mib"].text(),
            found["cpu_mib"].times(1 / 1024).text(),
            found["step_time_s"].times(1000).text(),
            found["tokens_per_second"].text(),
            found["samples_per_second"].text(1),
            found["total_runtime_s"].times(1 / 60).text(1),
            found["gpu_hours"].text(2),
        ]

    @property
    def least_cpu_gib(self) -> float:
        """What a node must have, while it trains or before."""
        return max(self.cpu.expected, self.loading_mib) / 1024

    @property
    def largest_cpu_gib(self) -> float:
        """What a node may come to use, while it trains or before."""
        return max(self.cpu.largest, self.cpu.expected + self.loading_mib) / 1024

    @property
    def verdict(self) -> str:
        """Whether it fits: fits, close, does not fit."""
        return self.reason.split(":")[0]

    @property
    def reason(self) -> str:
        """The verdict, with what is too large of a GPU's and of a node's memory."""
        memory, gpu = self.memory, self.gpu
        if memory.least_mib > gpu.memory_mib:
            return f"does not fit: needs {memory.least_mib:,.0f} of {gpu.memory_mib:,} MiB"
        if self.least_cpu_gib > gpu.node_gib:
            return f"does not fit: needs {self.least_cpu_gib:,.0f} of a node's {gpu.node_gib:,.0f} GiB"
        if memory.nvidia_smi.largest > gpu.memory_mib - CLOSE_MIB:
            return f"close: may come to {memory.nvidia_smi.largest:,.0f} of {gpu.memory_mib:,} MiB"
        if self.largest_cpu_gib > gpu.node_gib:
            return f"close: may come to {self.largest_cpu_gib:,.0f} of a node's {gpu.node_gib:,.0f} GiB"
        return "fits"

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
    time = Time(parts, step_s, run_s, steps, whole_run.steps_per_epoch(workload), timing.tokens_of(workload), samples)
    return Prediction(
        workload,
        gpu,
        _memory(step, workload, fitted),
        time,
        _within(cpu_mib, ratios["cpu_mib"], "all", family),
        # Each rank reads all of them in fp32: workshop/training/models.py, load_model.
        4 * parameters / MIB * workload.strategy.world_size / workload.setup.nodes * workload.length.pretrained,
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
    least, median, largest = reserved.own_of(fitted.beside, workload)
    nvidia_smi = Range(held.least + least, held.expected + median, held.largest + largest)
    return Memory(terms, allocated, held, nvidia_smi, least)


def _late_mib(step: Step, workload: Workload) -> float:
    """One set of fp32 gradients that the rank may hold twice for a moment: DDP with compiled blocks.

    Measured once: Llama-3.2-1B's second rank took 4,657 MiB more than its first in the second step; a set is 4,714.
    Its first rank, and both of each BLOOM, took what is expected.
    """
    return 4 * step["parameters"] / MIB if "ddp_bucket_mib" in workload.shape else 0.0
