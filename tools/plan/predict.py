"""The memory of runs, predicted: allocated by simulation, reserved and nvidia-smi's by what was measured beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tools.plan import gpus, overhead
from tools.plan.memory import Terms, peak_allocated
from tools.plan.simulate import simulate
from tools.plan.workload import Workload

MIB = 2**20
METRICS = ("peak_allocated_mib", "peak_reserved_mib", "nvidia_smi_mib")
# The largest error of allocated memory of any reference configuration is 3.1 %, but for two whose older runs had other
# code: DDP 1x4 (7.0 % from the median of both, 0.1 % from the newer run) and Liger's loss (5.9 %, 1.4 %).
ALLOCATED_ERROR_PERCENT = 3.5

# How far a configuration that was not among the measured ones may lie outside their range of reserved memory, percent:
# predicted without itself, 9 of 10 reference configurations are then inside the interval.
OUTSIDE_PERCENT = 10


@dataclass(frozen=True)
class Range:
    """MiB: expected, and an interval that would have held the reference runs of the kind."""

    least: float
    expected: float
    largest: float


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
        return dict(zip(METRICS, (self.allocated, self.reserved, self.nvidia_smi), strict=True))

    def verdict(self, gpu: str) -> str:
        """Whether it fits that GPU."""
        return gpus.verdict(gpu, self.allocated.expected, self.beside_mib, self.nvidia_smi.largest)


def predict(workloads: Sequence[Workload], fitted: overhead.Fitted | None = None) -> list[Memory]:
    """Args: fitted: what is beside allocated memory; None: overhead.json."""
    fitted = overhead.load() if fitted is None else fitted
    return [
        beside(terms, workload, fitted) for terms, workload in zip(allocated_terms(workloads), workloads, strict=True)
    ]


def allocated_terms(workloads: Sequence[Workload]) -> list[Terms]:
    """The terms of each peak, MiB; equal steps are simulated once."""
    keys = [workload.step_key for workload in workloads]
    shapes = dict(zip(keys, (workload.shape for workload in workloads), strict=True))
    steps = dict(zip(shapes, simulate(list(shapes.values())), strict=True))
    return [
        {name: size / MIB for name, size in peak_allocated(steps[key], workload.strategy).items()}
        for key, workload in zip(keys, workloads, strict=True)
    ]


def beside(terms: Terms, workload: Workload, fitted: overhead.Fitted) -> Memory:
    """The prediction with what is beside the allocated tensors."""
    measured = overhead.of(fitted, workload.strategy.method, workload.strategy.world_size > 1)
    expected, error = sum(terms.values()), ALLOCATED_ERROR_PERCENT / 100
    allocated = Range(expected * (1 - error), expected, expected * (1 + error))
    least, median, largest = (max(1.0, factor) * expected for factor in measured.reserved)
    margin = OUTSIDE_PERCENT / 100
    least, largest = max(expected, least * (1 - margin)), largest * (1 + margin)
    reserved = Range(least, median, largest)
    smallest, middle, most = measured.beside
    nvidia_smi = Range(least + smallest, median + middle, largest + most)
    return Memory(terms, allocated, reserved, nvidia_smi, smallest)
