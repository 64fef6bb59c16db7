"""The least time of a step with CPU offload on this machine, and a measured run beside it.

    python -m workshop.measure.offload_lower_bound RUN          # on the machine where the run was made

The GPU computes, weights go to it, gradients come back, the processor updates. Each has a rate, measured here, and an
amount, from model and configuration. The slowest part is the floor, reached if all overlap fully; without overlap the
step takes their sum.

What moves over PCIe in a step of DeepSpeed, and the letters, are in workshop/settings/offload.py. Beside it:

    scale the gradients    8 r P bytes of CPU memory, read and written: clipping and the loss scale
    update                 r P parameters by cpu_adam, on the processors that all GPUs share
    make half precision    (4 + 2) r P bytes of CPU memory
"""

import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from workshop.record.errors import InputError, read_json
from workshop.record.exercises import find_exercise
from workshop.record.flops import flops_per_token
from workshop.record.printable import markdown
from workshop.record.run_record import read_run_record, read_summary
from workshop.record.schema import Model, typed
from workshop.settings.offload import FP32_BYTES, Offload, moved_bytes
from workshop.training.callbacks import synchronise

BUFFER_BYTES = 2 << 30  # that are copied, read, or updated in a measurement
REPEATS = 10  # of each measurement; the fastest counts
# Parts of a step, in its order; the rate that each takes, the unit of its amount, and how much that is.
PARTS = {
    "computing": ("matrix", "TFLOP", 1e12),
    "to the CPU": ("to cpu", "GB", 1e9),
    "scale the gradients": ("cpu memory", "GB", 1e9),
    "update": ("adam", "billion parameters", 1e9),
    "make half precision": ("cpu memory", "GB", 1e9),
    "to the GPU": ("to gpu", "GB", 1e9),
    "to the GPU, pageable": ("to gpu pageable", "GB", 1e9),
}


def work_of(record: dict[str, Any], config: dict[str, Any], logit_share: float = 1) -> dict[str, float]:
    """Return the amount of each of PARTS in a step of a run with its DeepSpeed configuration.

    In bytes, parameters and operations: a GPU's own bytes over PCIe and matrix products, forward and backward; the
    bytes of CPU memory, read and written, and the parameters of all GPUs. `logit_share` of the positions have their
    logits computed (LOGITS=labelled: not all). Raises InputError where nothing is offloaded.
    """
    on_cpu = Offload.of(config).share
    if not on_cpu:
        raise InputError(f"config {record['config']}: offload_optimizer is not on the CPU; expected a run that is")
    settings, model = record["settings"], typed(record["model"], Model)
    parameters, accumulation = model.parameters, settings["grad_acc"]
    width = 2 if settings["fp16"] or settings["bf16"] else FP32_BYTES
    moved = moved_bytes(config, parameters / record["world_size"], accumulation, width)
    tokens = settings["batch_size"] * accumulation * settings["max_length"]
    skipped = 6 * model.embedding_parameters * (1 - logit_share)
    return {
        "computing": (flops_per_token(model, settings["max_length"]) - skipped) * tokens,
        "to the CPU": moved.to_cpu,
        "scale the gradients": 2 * FP32_BYTES * on_cpu * parameters,
        "update": on_cpu * parameters,
        "make half precision": (FP32_BYTES + width) * on_cpu * parameters,
        "to the GPU": moved.to_gpu,
        "to the GPU, pageable": moved.to_gpu_pageable,
    }


def rates_of_cpu(size: int = BUFFER_BYTES, repeats: int = REPEATS) -> dict[str, float]:
    """Measure, per second, bytes read and written by a = b + s c on all processors, and parameters updated by cpu_adam.

    The sum is STREAM's triad, without the line of memory that a write may read first.
    """
    from deepspeed.ops.adam import DeepSpeedCPUAdam

    from workshop.kernels.operators import load

    first, second, result = (torch.ones(size // FP32_BYTES) for _ in range(3))
    triad = best_per_second(3 * size, lambda: torch.add(first, second, alpha=2.0, out=result), repeats)
    load(["cpu_adam"])
    weight = torch.nn.Parameter(first)
    weight.grad = torch.full_like(weight, 1e-3)
    adam = best_per_second(weight.numel(), DeepSpeedCPUAdam([weight], lr=1e-5).step, repeats)
    return {"cpu memory": triad, "adam": adam}


def rates_of_gpu() -> dict[str, float]:
    """Measure, per second, bytes copied from pinned and from pageable memory, and operations of a bf16 product."""
    found = {}
    on_gpu = torch.empty(BUFFER_BYTES, dtype=torch.uint8, device="cuda")
    for name, pinned in (("", True), (" pageable", False)):
        on_cpu = torch.empty(BUFFER_BYTES, dtype=torch.uint8, pin_memory=pinned)
        on_cpu.zero_()  # allocates the pages
        for direction, source, target in (("to gpu", on_cpu, on_gpu), ("to cpu", on_gpu, on_cpu)):
            copy = partial(target.copy_, source, non_blocking=True)
            found[direction + name] = best_per_second(BUFFER_BYTES, copy)
    side = 8192
    factor = torch.randn(side, side, dtype=torch.bfloat16, device="cuda")
    return found | {"matrix": best_per_second(2 * side**3, lambda: factor @ factor)}


def best_per_second(amount: float, work: Callable[[], object], repeats: int = REPEATS) -> float:
    """Return the amount per second of the fastest repetition, after one as warm-up."""
    times_s = []
    for _ in range(repeats + 1):
        start_s = time.perf_counter()
        work()
        synchronise()
        times_s.append(time.perf_counter() - start_s)
    return amount / min(times_s[1:])


def report(work: dict[str, float], rates: dict[str, float], step_s: float) -> str:
    """Return the arithmetic, the floor and the measured step."""
    rows, times_s = [], []
    for part, amount in work.items():
        if amount:
            rate, unit, size = PARTS[part]
            times_s.append(amount / rates[rate])
            seconds = f"{amount / size:.4g} / {rates[rate] / size:.4g} = {times_s[-1]:.3g}"
            rows.append((part, f"{amount / size:.4g} {unit}", seconds))
    floor_s, sum_s = max(times_s), sum(times_s)
    return (
        f"{markdown(('part of a step', 'amount', 'seconds'), rows)}\n\n"
        f"floor, if all parts overlap: {floor_s:.3g} s; one after the other: {sum_s:.3g} s\n"
        f"measured step: {step_s:.3g} s, {step_s / floor_s:.2f} times the floor, {step_s / sum_s:.2f} times the sum"
    )


def main(folder: Path) -> None:
    """Print the report. Raises InputError for another folder than a run of this machine with offload."""
    record, summary = read_run_record(folder), read_summary(folder)
    if not (record.get("config") and summary.get("train/steps_per_second")):
        raise InputError(f"{folder}: found no summary of a run with a configuration, expected one with offload")
    here = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    if here not in record["gpu_names"]:
        raise InputError(f"{folder}: its GPU is {record['gpu_names'][:1]}, found {here}; expected the same machine")
    exercise, name = find_exercise(record["exercise"], "*"), record["settings"]["config"]
    paths = [path for place in ("", "ds_configs/", "ds_configs/tuning/") for path in exercise.glob(place + name)]
    if not paths:
        raise InputError(f"{folder}/run.json: config {name}: found no such file in {exercise}, expected one")
    logits, tokens = (summary[f"train/{name}_per_second"] for name in ("logit_positions", "tokens"))
    work = work_of(record, read_json(paths[0]), logits / tokens)
    print(report(work, rates_of_cpu() | rates_of_gpu(), 1 / summary["train/steps_per_second"]))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise InputError(f"found {len(sys.argv) - 1} arguments, expected a run's folder")
    main(Path(sys.argv[1]))
