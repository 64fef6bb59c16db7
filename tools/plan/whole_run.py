"""The CPU memory of a run's fullest node, and what a run takes beside its steps: sums of counts times constants."""

from __future__ import annotations

from math import ceil
from typing import Any

from tools.plan.fitting import Constants, Term
from tools.plan.workload import PACKED_EXAMPLES_PER_POSITION, Workload

# MiB of the processes' summed RSS, as psrecord has it; shared pages count once per process.
CPU_TERMS = {
    "processes": Term("", "MiB", 1_700, "ranks on a node: Python, PyTorch, CUDA"),
    "several": Term("", "MiB", 500, "ranks on a node of a run on several GPUs: launcher and NCCL"),
    "deepspeed": Term("", "MiB", 700, "ranks on a node with DeepSpeed"),
    "compilers": Term("", "MiB", 6_600, "ranks on a node with compiled kernels: torch.compile's processes"),
    "workers": Term("", "MiB", 5_000, "ranks on a node with DATA_WORKERS and compiled kernels"),
    "zero_offload": Term("", "MiB", 23, "MiB of parameters on a node whose states ZeRO-1 and 2 offload, per byte"),
    "zero3_offload": Term("", "MiB", 27, "the same of ZeRO-3"),
    "fsdp_offload": Term("", "MiB", 17, "the same of FSDP"),
}

# Seconds of the whole job beside its optimizer steps.
OTHER_TERMS = {
    "jobs": Term("", "s", 12, "jobs: start of the processes, imports, model, data"),
    "by_hand": Term("", "s", 8, "jobs without a Trainer, by-hand's, on several GPUs"),
    "several": Term("", "s", 4, "jobs on several GPUs: NCCL, the slowest rank"),
    "deepspeed": Term("", "s", 12, "jobs with DeepSpeed: its engine, its kernels"),
    "compilations": Term("", "s", 20, "jobs with compiled kernels, first step and first evaluation"),
    "offloaded": Term("", "s", 10, "10^9 parameters whose states are made and pinned on the CPU"),
    "saved": Term("", "s", 8, "10^9 parameters written per checkpoint or final model"),
    "evaluated": Term("", "x", 1, "seconds of evaluation, at a third of a training step's time per example"),
    "generated": Term("", "s", 0.7, "micro-batches of answers, generated token by token"),
}


def examples_per_row(workload: Workload) -> float:
    return PACKED_EXAMPLES_PER_POSITION * workload.shape["max_length"] if workload.length.packing else 1


def rows_per_step(workload: Workload) -> int:
    """Rows of all ranks in an optimizer step."""
    strategy = workload.strategy
    return workload.shape["batch_size"] * strategy.accumulation * strategy.world_size


def steps_per_epoch(workload: Workload) -> int:
    """Optimizer steps that pass all examples once."""
    return ceil(workload.length.examples / (rows_per_step(workload) * examples_per_row(workload)))


def steps_of(workload: Workload) -> int:
    """Optimizer steps of the run."""
    length = workload.length
    return length.max_steps or steps_per_epoch(workload) * length.epochs


def _evaluations(workload: Workload) -> int:
    """One after each epoch, the unfinished last one of MAX_STEPS included."""
    return max(1, ceil(steps_of(workload) / max(1, steps_per_epoch(workload))))


def _saves(workload: Workload) -> int:
    """Checkpoints, and the final model."""
    length = workload.length
    if length.save == "no":
        return 0
    named = steps_of(workload) // length.save_steps if length.save == "steps" and length.save_steps else 0
    return 1 + (_evaluations(workload) if length.save == "epoch" else named)


def compiles(workload: Workload) -> bool:
    shape = workload.shape
    return bool(shape.get("compile")) or shape.get("attention") == "flex" or shape.get("loss") == "chunked"


def cpu_work(workload: Workload, parameters: int) -> dict[str, float]:
    """By the names of CPU_TERMS."""
    strategy, setup = workload.strategy, workload.setup
    ranks, method = strategy.world_size / setup.nodes, strategy.method
    states = parameters / 2**20 * (strategy.world_size / strategy.shards) / setup.nodes * strategy.share_on_cpu
    return {
        "processes": ranks,
        "several": ranks * (strategy.world_size > 1),
        "deepspeed": ranks * method.startswith("zero"),
        "compilers": ranks * compiles(workload),
        "workers": ranks * (compiles(workload) and setup.data_workers),
        "zero_offload": states * (method in ("zero1", "zero2")),
        "zero3_offload": states * (method == "zero3"),
        "fsdp_offload": states * method.startswith("fsdp"),
    }


def other_work(workload: Workload, parameters: int, step_s: float) -> dict[str, float]:
    """By the names of OTHER_TERMS. Args: step_s: of an optimizer step."""
    strategy, length = workload.strategy, workload.length
    billions = parameters / 1e9
    evaluations = _evaluations(workload)
    return {
        "jobs": not workload.by_hand,
        "by_hand": workload.by_hand,
        "several": strategy.world_size > 1 and not workload.by_hand,
        "deepspeed": strategy.method.startswith("zero"),
        "compilations": compiles(workload),
        "offloaded": billions * strategy.share_on_cpu,
        "saved": billions * _saves(workload),
        "evaluated": evaluations * length.eval_examples * step_s / rows_per_step(workload) / 3,
        "generated": length.generated,
    }


def total(work: dict[str, Any], constants: Constants) -> Any:
    return sum(work[name] * constants[name] for name in work)
