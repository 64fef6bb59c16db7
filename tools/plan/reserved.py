"""What PyTorch's allocator holds beside the allocated tensors at their peak: gaps that nothing fitted into.

It cannot be computed without replaying every allocation in its order. It is fitted: gaps grow with the activations, and
with the buffers that a method makes and frees in every step.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from typing import Any

from tools.plan.fitting import Constants, Term
from tools.plan.memory import MIB, peak_allocated
from tools.plan.workload import Workload

_PARAMETERS = "MiB of parameters in the precision they are computed in"
TERMS = {
    "activations": Term("", "x", 0.2, "activations at the peak, MiB; one micro-batch per step", 1),
    "autocast": Term("", "x", 0.2, "the same of fp32 weights, whose half-precision copies come and go", 1),
    "accumulated": Term("", "x", 0.1, "the same, several micro-batches per step: the optimizer's come from them", 1),
    "compiled": Term("", "x", 0.1, "the same under torch.compile", 1),
    # From the one configuration that was measured, rung 3, in two runs; left out in no check.
    "changing": Term("", "x", 0.7, "the same where rows change their length, on top", 0.1),
    "none": Term("", "x", 0.2, f"{_PARAMETERS}: one GPU", 1),
    "ddp": Term("", "x", 0.5, f"{_PARAMETERS}: DDP", 1),
    "zero0": Term("", "x", 0.5, f"{_PARAMETERS}: DeepSpeed without ZeRO", 1),
    "zero1": Term("", "x", 1.0, f"{_PARAMETERS}, of a rank's shard: ZeRO-1", 1),
    "zero2": Term("", "x", 1.0, f"{_PARAMETERS}, of a rank's shard: ZeRO-2", 1),
    "zero3": Term("", "x", 0.6, f"{_PARAMETERS}: ZeRO-3", 1),
    "fsdp1": Term("", "x", 2.0, f"{_PARAMETERS}: FSDP1", 1),
    "fsdp2": Term("", "x", 0.5, f"{_PARAMETERS}: FSDP2", 1),
    "new_states": Term("", "x", 0.3, "MiB of ZeRO's flat moments, made when activations have cut the memory up", 1),
    "streams": Term("", "MiB", 300, "runs with DeepSpeed: its streams share no freed memory", 1),
    "fsdp_shards": Term("", "x", 0.3, "MiB of a rank's shard of the fp32 parameters: FSDP", 1),
    "blocks": Term("", "x", 1.0, "MiB of one block's parameters, gathered and freed: ZeRO-3, FSDP", 1),
    "largest": Term("", "x", 1.0, "MiB of the largest parameter: ZeRO and FSDP, but not ZeRO-1 with offload", 1),
}


def work_of(workload: Workload, step: dict[str, Any]) -> dict[str, float]:
    """By the names of TERMS, and `allocated`. Args: step: as simulated. All MiB."""
    strategy = workload.strategy
    method = strategy.method
    terms = peak_allocated(step, strategy)
    width = 2 if strategy.half or method in ("none", "ddp") else 4
    parameters, block, largest = (
        width * step[name] / MIB for name in ("parameters", "block_parameters", "largest_parameter")
    )
    fsdp, zero = method.startswith("fsdp"), method.startswith("zero")
    activations = terms.get("activations", 0) / MIB
    if workload.shape.get("compile"):
        kind = "compiled"
    elif strategy.accumulation > 1:
        kind = "accumulated"
    else:
        kind = "autocast" if workload.shape["engine"] == "autocast" else "activations"
    work = dict.fromkeys(TERMS, 0.0) | {"allocated": sum(terms.values()) / MIB, kind: activations}
    work["changing"] = workload.setup.dynamic_padding * activations
    work[method] = parameters / (strategy.shards if method in ("zero1", "zero2") else 1)
    # The first step makes them; at most all of what was freed before cannot hold them.
    moments = 8 * step["parameters"] / strategy.shards * (1 - strategy.share_on_cpu) / MIB
    work["new_states"] = min(moments, activations) * zero
    work["streams"] = zero
    work["fsdp_shards"] = 4 * step["parameters"] / strategy.shards / MIB * fsdp
    work["blocks"] = block * (fsdp or method == "zero3")
    offloading_zero1 = method == "zero1" and strategy.share_on_cpu > 0
    work["largest"] = largest * ((zero or fsdp) and not offloading_zero1)
    return work


def reserved_mib(work: dict[str, Any], constants: Constants) -> Any:
    return work["allocated"] + sum(work[name] * constants[name] for name in TERMS)


# ---- CUDA's and NCCL's own memory, which nvidia-smi counts beside PyTorch's: measured, not computed ----

# constants.json: by method on one GPU, on several, on several nodes, the reference configurations' least, median and
# largest (MiB).
Beside = dict[str, tuple[float, float, float]]


def fit_own(measured: Iterable[tuple[Workload, float]]) -> Beside:
    """By `method, GPUs`, by GPUs alone for a method without a run there, and over all.

    Args: measured: configurations, each with nvidia-smi's peak less PyTorch's reserved one (MiB).
    """
    groups: dict[str, list[float]] = {}
    for workload, mib in measured:
        for name in _names(workload):
            groups.setdefault(name, []).append(mib)
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


def own_of(found: Beside, workload: Workload) -> tuple[float, float, float]:
    """The nearest group that has runs."""
    return next(found[name] for name in _names(workload) if name in found)
