"""What nvidia-smi counts beside PyTorch's memory: CUDA's and NCCL's own. Measured, not computed.

constants.json holds, for each method on one GPU, on several and on several nodes, the median over the reference
configurations with the least and the largest.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from tools.plan.workload import Workload

# By group: least, median, largest, MiB.
Beside = dict[str, tuple[float, float, float]]


@dataclass(frozen=True)
class Measured:
    """One configuration, and nvidia-smi's peak less PyTorch's reserved peak."""

    workload: Workload
    mib: float


def fit(measured: Iterable[Measured]) -> Beside:
    """By `method, GPUs`, by GPUs alone for a method without a run there, and over all."""
    groups: dict[str, list[float]] = {}
    for one in measured:
        for name in _names(one.workload):
            groups.setdefault(name, []).append(one.mib)
    return {
        name: (round(min(values)), round(statistics.median(values)), round(max(values)))
        for name, values in sorted(groups.items())
    }


def _names(workload: Workload) -> tuple[str, str, str]:
    gpus = "one GPU" if workload.strategy.world_size == 1 else "several GPUs"
    gpus = "several nodes" if workload.setup.nodes > 1 else gpus
    # Hybrid sharding has groups of ranks beside the world, each with NCCL's own buffers.
    method = workload.strategy.method + " hybrid" * (workload.strategy.config.get("dp_replicate_size", 1) > 1)
    return f"{method}, {gpus}", gpus, "all"


def of(found: Beside, workload: Workload) -> tuple[float, float, float]:
    """The nearest group that has runs."""
    return next(found[name] for name in _names(workload) if name in found)
