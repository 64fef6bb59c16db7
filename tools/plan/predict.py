"""Predict runs: memory by simulation and measured overheads, time by counted work and fitted constants."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tools.errors import InputError
from tools.plan import constants, memory, timing
from tools.plan.constants import NOISE, Fitted, Ratios, total
from tools.plan.gpus import Gpu
from tools.plan.memory import MIB, Terms
from tools.plan.simulate import Step, steps
from tools.plan.timing import StepTime
from tools.plan.workload import Workload

# The margin of "fits", beside allocated memory. The largest error of any reference configuration is 3.1 %, but of one
# that had older code, and of DDP with compiled blocks (_gpu_memory). Of our runs none failed that needed less than the
# GPU has, and 21 completed that needed 70 to 93 % of it, which PyTorch's reserve or nvidia-smi's figure may exceed.
ALLOCATED_ERROR_PERCENT = 3.5
# The most that a reference run had; nodes were emulated.
MEASURED_LENGTH, MEASURED_GPUS, MEASURED_PARAMETERS = 4_096, 4, 8.2e9
_TIE = 0.03  # a difference between predicted times that says nothing
# Of a table: title, figure, factor from the figure's unit, decimals.
_COLUMNS = (
    ("allocated (MiB)", "peak_allocated_mib", 1, 0),
    ("nvidia-smi (MiB)", "nvidia_smi_mib", 1, 0),
    ("CPU per node (GiB)", "cpu_mib", 1 / 1024, 0),
    ("step (ms)", "step_time_s", 1000, 0),
    ("tokens/s", "tokens_per_second", 1, 0),
    ("examples/s", "samples_per_second", 1, 1),
    ("job (min)", "total_runtime_s", 1 / 60, 1),
    ("GPU-hours", "gpu_hours", 1, 2),
)
TITLES = tuple(title for title, *_ in _COLUMNS)


@dataclass(frozen=True)
class Range:
    """The expected value, and an interval that covers the reference runs of the kind."""

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

    def at_most(self, most: float) -> Range:
        return Range(*(min(most, value) for value in (self.least, self.expected, self.largest)))

    def error_percent(self, measured: float) -> float:
        return 100 * (self.expected / measured - 1)

    def holds(self, measured: float) -> bool:
        return self.least <= measured <= self.largest

    def per(self, amount: float) -> Range:
        """The amount divided by this range: a longer time is a lower speed."""
        return Range(amount / self.largest, amount / self.expected, amount / self.least)


@dataclass(frozen=True)
class Prediction:
    """The needs of one run.

    Attributes:
        terms: what is allocated on the fullest GPU at its peak, MiB; context_mib: CUDA's own memory, at least.
        parts: of an optimizer step, seconds.
        ranges: all figures, by the names that `plan --format json` has for them.
        loading_mib: of a node's CPU memory, pretrained weights before the training.
        traffic: of a step (timing.traffic).
        parameters: of the model.
    """

    workload: Workload
    gpu: Gpu
    terms: Terms
    context_mib: float
    parts: StepTime
    ranges: dict[str, Range]
    loading_mib: float
    traffic: tuple[float, float]
    parameters: int

    @property
    def figures(self) -> dict[str, dict[str, float]]:
        """The ranges with six digits."""
        return {name: found.rounded for name, found in self.ranges.items()}

    @property
    def cells(self) -> list[str]:
        """A row of a table with the columns TITLES."""
        return [self.ranges[name].times(factor).text(decimals) for _, name, factor, decimals in _COLUMNS]

    @property
    def least_cpu_gib(self) -> float:
        """CPU memory that a node must have, in training or while it loads the weights."""
        return max(self.ranges["cpu_mib"].expected, self.loading_mib) / 1024

    @property
    def largest_cpu_gib(self) -> float:
        """The most CPU memory that a node may use, in training or while it loads the weights; no more than it has."""
        cpu = self.ranges["cpu_mib"]
        return min(self.gpu.node_gib, max(cpu.largest, cpu.expected + self.loading_mib) / 1024)

    @property
    def needed_mib(self) -> float:
        """Of the fullest GPU: the tensors and CUDA's context. PyTorch gives back its unused reserve before it fails."""
        return self.ranges["peak_allocated_mib"].expected + self.context_mib

    @property
    def limit(self) -> str:
        """The memory that is too small: "GPU", "CPU" or ""."""
        if self.needed_mib > self.gpu.memory_mib:
            return "GPU"
        return "CPU" if self.least_cpu_gib > self.gpu.node_gib else ""

    @property
    def verdict(self) -> str:
        """One of: fits, close, does not fit. A run is close if the margin decides: runs of ours failed beyond it."""
        largest_mib = self.ranges["peak_allocated_mib"].largest + self.context_mib
        if self.limit:
            return "does not fit"
        return "close" if largest_mib > self.gpu.memory_mib else "fits"

    @property
    def reason(self) -> str:
        """The verdict, and which memory is too small."""
        needs = {
            "GPU": f": needs {self.needed_mib:,.0f} of {self.gpu.memory_mib:,} MiB",
            "CPU": f": needs {self.least_cpu_gib:,.0f} of a node's {self.gpu.node_gib:,.0f} GiB",
        }
        return self.verdict + needs.get(self.limit, "")

    @property
    def extrapolates(self) -> list[str]:
        """What no reference run had: the intervals are those of smaller ones."""
        workload, strategy = self.workload, self.workload.strategy
        length = workload.layout.length if workload.layout else workload.shape["max_length"]
        return [
            *[f"rows of more than {MEASURED_LENGTH:,} tokens"] * (length > MEASURED_LENGTH),
            *[f"more than {MEASURED_GPUS} GPUs"] * (strategy.world_size > MEASURED_GPUS),
            *["several real nodes"] * (workload.nodes > 1),
            *[f"more than {MEASURED_PARAMETERS / 1e9:g} billion parameters"] * (self.parameters > MEASURED_PARAMETERS),
        ]

    @property
    def tight(self) -> bool:
        """Whether PyTorch's reserve may come to a GiB from the GPU's end: then less memory is worth some time."""
        return self.ranges["nvidia_smi_mib"].largest > self.gpu.memory_mib - 1024

    @property
    def sort_key(self) -> tuple[int, float, float]:
        """Class, step time (s), allocated MiB. Lower sorts first; of those that do not fit, the one nearest to it."""
        kind = ("fits", "close", "does not fit").index(self.verdict)
        allocated_mib = self.ranges["peak_allocated_mib"].expected
        return kind, allocated_mib if kind == 2 else self.ranges["step_time_s"].expected, allocated_mib


def predict(workloads: Sequence[Workload], gpu: Gpu) -> list[Prediction | InputError]:
    """Predictions by constants.json; an error where a step cannot be simulated or the GPU lacks the precision."""
    found: list[Prediction | InputError] = []
    for step, workload in zip(steps([one.shape for one in workloads]), workloads, strict=True):
        try:
            found.append(step if isinstance(step, InputError) else predict_from(step, workload, gpu, constants.load()))
        except InputError as error:
            found.append(error)
    return found


def predict_from(step: Step, workload: Workload, gpu: Gpu, fitted: Fitted) -> Prediction:
    """Args: step: the simulated micro-batch of the workload's shape."""
    found, ratios, family = fitted.constants, fitted.ratios, workload.family
    parameters, of_model = memory.trained(step)["parameters"], step["parameters"]
    if workload.layout:
        step = workload.layout.on_rank(step)
    terms = {name: size / MIB for name, size in memory.peak_allocated(step, workload.strategy).items()}
    context = memory.cuda_context(fitted.cuda_context, workload)
    parts = timing.step_time(timing.work_of(workload, step, gpu), found["step_time_s"])
    if workload.layout:
        parts = replace(parts, total=parts.total / (1 - workload.layout.bubble))
    step_s = _within(parts.total, ratios["step_time_s"], f"{parts.decided_by}, {family}", parts.decided_by)
    other_s = total(timing.other_work(workload, parameters, parts.total), found["other_s"])
    others = _within(other_s, ratios["other_s"], "all", family)
    cpu_mib = total(memory.cpu_work(workload, parameters), found["cpu_mib"])
    run_s = Range(
        *(getattr(others, end) + workload.steps * getattr(step_s, end) for end in ("least", "expected", "largest"))
    )
    ranks = workload.strategy.world_size
    memory_ranges = _gpu_memory(sum(terms.values()), context, step, workload, fitted)
    # PyTorch gives its reserve back before it fails, so nvidia-smi shows no more than there is.
    most = max(gpu.memory_mib, memory_ranges["peak_allocated_mib"].expected + context[0])
    ranges = {name: found.at_most(most) for name, found in memory_ranges.items()} | {
        "cpu_mib": _within(cpu_mib, ratios["cpu_mib"], "all", family),
        "step_time_s": step_s,
        "tokens_per_second": step_s.per(workload.tokens_per_step),
        "samples_per_second": step_s.per(workload.rows_per_step * workload.examples_per_row),
        "total_runtime_s": run_s,
        "gpu_hours": run_s.times(ranks / 3600),
    }
    width = 2 if "frozen" in step else 4
    loading_mib = width * step["parameters"] / MIB * workload.readers * workload.pretrained
    traffic = timing.traffic(workload, step)
    return Prediction(workload, gpu, terms, context[0], parts, ranges, loading_mib, traffic, of_model)


def _gpu_memory(
    expected: float, context: tuple[float, float, float], step: Step, workload: Workload, fitted: Fitted
) -> dict[str, Range]:
    """Args: expected: allocated; context: CUDA's own: least, median, largest. All MiB."""
    error = ALLOCATED_ERROR_PERCENT / 100
    # One set of fp32 gradients that the rank may hold twice for a moment: DDP with compiled blocks. Measured once:
    # Llama-3.2-1B's second rank took 4,657 MiB more than its first in the second step; a set is 4,714. Its first rank,
    # and both of each BLOOM, took what is expected.
    late_mib = 4 * memory.trained(step)["parameters"] / MIB if "ddp_bucket_mib" in workload.shape else 0
    allocated = Range(expected * (1 - error), expected, expected * (1 + error) + late_mib)
    held_mib = total(memory.reserved_work(workload, step), fitted.constants["reserved_mib"])
    kind = memory.reserve_kind(workload, step)
    kinds = (kind,) if kind == "replayed" else ("all", kind)
    held = _within(held_mib, fitted.ratios["reserved_mib"], *kinds)
    held = Range(max(expected, held.least), held.expected, max(held.largest, allocated.largest))
    least, median, largest = context
    nvidia_smi = Range(held.least + least, held.expected + median, held.largest + largest)
    return {"peak_allocated_mib": allocated, "peak_reserved_mib": held, "nvidia_smi_mib": nvidia_smi}


def _within(expected: float, ratios: Ratios, *kinds: str) -> Range:
    """The interval that covers the runs of each of these kinds; of all runs where every kind has too few."""
    found = [ratios[kind] for kind in kinds if kind in ratios] or [ratios["all"]]
    least, largest = min(one[0] for one in found), max(one[1] for one in found)
    return Range(expected * min(1, least), expected, expected * max(1, largest))


def first_choice(options: Sequence[Prediction]) -> int:
    """The index of the choice: the fastest of the lowest class, of equally fast ones the one with the least memory.

    If the fastest one's memory is tight, times count as equal that a measurement cannot tell apart.
    """
    keys = [one.sort_key for one in options]
    fastest = min(range(len(options)), key=keys.__getitem__)
    kind, time_s, _ = keys[fastest]
    slowest_s = time_s * (1 + (NOISE if options[fastest].tight else _TIE))
    near = [(own[2], place) for place, own in enumerate(keys) if own[0] == kind and own[1] <= slowest_s]
    return min(near)[1]
