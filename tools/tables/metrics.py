"""Every figure a table can show, by the name that labels and `runs --figures` use for it."""

from __future__ import annotations

from dataclasses import dataclass

from tools.logs.figures import DEFINITIONS
from tools.tables.comparisons import COMPARISONS, Value, of_run


@dataclass(frozen=True)
class Metric:
    """One figure.

    Attributes:
        unit: printed after the figure where the label does not name it; "" for none.
        decimals: digits printed after the point.
        definition: one line: what it is and which file it is from.
        value: from the cell's selection to the figure: of repeats the median, for a ratio of each side.
    """

    unit: str
    decimals: int
    definition: str
    value: Value


def _gb(mib: float) -> float:
    return mib * 2**20 / 1e9


METRICS: dict[str, Metric] = {
    **{one.metric: Metric(one.unit, one.decimals, one.text, of_run(name)) for name, one in DEFINITIONS.items()},
    # The same figures under other names, or in GB (10^9 bytes) where a published table has them so.
    "memory_allocated": Metric(
        *("MiB", 0),
        "peak of PyTorch's allocator, allocated (not reserved), largest rank (summary.json, peak_mem_alloc_mib)",
        of_run("peak_allocated_mib", "no summary"),
    ),
    "memory_allocated_gb": Metric(
        *("GB", 2),
        "peak of PyTorch's allocator, allocated, largest rank, in 10^9 bytes (summary.json, peak_mem_alloc_mib)",
        of_run("peak_allocated_mib", "no summary", _gb),
    ),
    "gpu_memory_smi_gb": Metric(
        *("GB", 2),
        "mean memory.used over all samples of all GPUs, once a second from start to end of the job (gpu_memory*.csv)",
        of_run("mean_gpu_mib", convert=_gb),
    ),
    **{name: Metric(*comparison) for name, comparison in COMPARISONS.items()},
}
