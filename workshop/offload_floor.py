"""How long a step with CPU offload takes at least on this machine, and how far a measured run is from it.

    python -m workshop.offload_floor logs/deepspeed-zero3-offload/RUN          # this machine, where the run was made
    python -m workshop.offload_floor logs/deepspeed-zero3-offload/RUN --mib 256 --repeats 3

Four things work at once in such a step: the GPU computes, weights travel to it, gradients travel back, and the
processor updates. Each has a rate, measured here, and an amount, which follows from the model and the configuration. If
all overlapped fully, the slowest of them would be the step: that is the floor. One after the other they take their sum.

What DeepSpeed 0.19.8 moves per step (runtime/zero/stage3.py, stage_1_and_2.py), in bytes per GPU of N on one host, for
P parameters, A micro-batches, half precision (fp32: twice as many):

    weights to the GPU     stage 3, parameters offloaded: 2 A x 2P/N, once for forward and once for backward
                           else: 2P/N, those that were updated; times the optimizer's share on the CPU
    gradients to the CPU   A x 2P/N
    and back to add to     (A - 1) x 2P/N, stage 3
    update                 P parameters, by the processors that all GPUs share; times stage 3's `ratio`
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from workshop.deepspeed import read_json
from workshop.errors import WorkshopError

REPO = Path(__file__).resolve().parents[1]
NOT_MEASURED = "not measured"


@dataclass(frozen=True)
class Rates:
    """What the machine does per second; None: not measured, as without a GPU.

    Attributes:
        to_gpu, to_cpu, to_gpu_pageable, to_cpu_pageable: bytes, from pinned and from pageable memory.
        adam: parameters updated by DeepSpeed's cpu_adam.
        matrix: operations of a bf16 matrix product.
    """

    to_gpu: float | None
    to_cpu: float | None
    to_gpu_pageable: float | None
    to_cpu_pageable: float | None
    adam: float
    matrix: float | None


@dataclass(frozen=True)
class Work:
    """What a GPU's share of a step is made of: bytes, parameters (of all GPUs), operations."""

    to_gpu_bytes: float
    to_cpu_bytes: float
    adam_parameters: float
    operations: float


def work_of(record: dict[str, Any], config: dict[str, Any]) -> Work:
    """Of a run and its DeepSpeed configuration. Raises WorkshopError if nothing of it is offloaded."""
    zero = config.get("zero_optimization", {})
    stage, optimizer, weights = (zero.get(key) or {} for key in ("stage", "offload_optimizer", "offload_param"))
    if optimizer.get("device") != "cpu":
        raise WorkshopError(f"config {record['config']}: offload_optimizer is not on the CPU; expected a run that is")
    settings, model = record["settings"], record["model"]
    parameters, accumulation = model["parameters"], settings["grad_acc"]
    on_cpu = optimizer.get("ratio", 1.0) if stage == 3 else 1.0
    width = 2 if settings["fp16"] or settings["bf16"] else 4
    share = width * parameters / record["world_size"]
    gathered = 2 * accumulation * share if weights.get("device") == "cpu" else on_cpu * share
    added = (accumulation - 1) * share if stage == 3 else 0
    tokens = settings["batch_size"] * accumulation * settings["max_length"]
    per_token = 6 * parameters + 12 * model["layers"] * model["hidden_size"] * settings["max_length"]
    return Work(gathered + added, accumulation * share, on_cpu * parameters, per_token * tokens)


def parts_s(work: Work, rates: Rates) -> dict[str, float | None]:
    """Seconds that each part of a step takes at its measured rate; None where that was not measured."""
    return {
        "computing": rates.matrix and work.operations / rates.matrix,
        "to the GPU": rates.to_gpu and work.to_gpu_bytes / rates.to_gpu,
        "to the CPU": rates.to_cpu and work.to_cpu_bytes / rates.to_cpu,
        "update": work.adam_parameters / rates.adam,
    }


def report(work: Work, rates: Rates, step_s: float | None, elsewhere: str = "") -> list[str]:
    """The rates, the arithmetic, the floor, and the measured step beside it.

    Args:
        elsewhere: on which GPUs the step was measured, if not on this machine's: no ratio then.
    """
    lines = ["| rate | measured |", "|---|---|"]
    units = {"to_gpu": "GB/s", "to_cpu": "GB/s", "to_gpu_pageable": "GB/s", "to_cpu_pageable": "GB/s"}
    for name, rate in vars(rates).items():
        unit = units.get(name) or {"adam": "billion parameters/s", "matrix": "TFLOP/s"}[name]
        scale = 1e12 if unit == "TFLOP/s" else 1e9
        lines.append(f"| {name.replace('_', ' ')} | {f'{rate / scale:.2f} {unit}' if rate else NOT_MEASURED} |")
    seconds = parts_s(work, rates)
    amounts = {
        "computing": (work.operations / 1e12, "TFLOP", rates.matrix and rates.matrix / 1e12),
        "to the GPU": (work.to_gpu_bytes / 1e9, "GB", rates.to_gpu and rates.to_gpu / 1e9),
        "to the CPU": (work.to_cpu_bytes / 1e9, "GB", rates.to_cpu and rates.to_cpu / 1e9),
        "update": (work.adam_parameters / 1e9, "billion parameters", rates.adam / 1e9),
    }
    lines += ["", "| part of a step | amount | seconds |", "|---|---|---|"]
    for name, (amount, unit, rate) in amounts.items():
        taken = f"{amount:.4g} / {rate:.4g} = {seconds[name]:.3g}" if rate else NOT_MEASURED
        lines.append(f"| {name} | {amount:.4g} {unit} | {taken} |")
    known = [value for value in seconds.values() if value is not None]
    partly = "" if len(known) == len(seconds) else ", of the parts that were measured"
    lines += ["", f"floor, if all parts overlap: {max(known):.3g} s{partly}; one after the other: {sum(known):.3g} s"]
    if step_s and elsewhere:
        lines.append(f"measured step: {step_s:.3g} s, but on {elsewhere}: measure the rates there")
    elif step_s:
        lines.append(f"measured step: {step_s:.3g} s, {step_s / max(known):.2f} times the floor")
    return lines


def best_per_second(amount: float, work: Callable[[], object], repeats: int, gpu: bool = False) -> float:
    """Amount per second of the fastest of the repetitions, after one that does not count."""
    fastest_s = float("inf")
    for repeat in range(repeats + 1):
        start_s = time.perf_counter()
        work()
        if gpu:
            torch.cuda.synchronize()
        if repeat:
            fastest_s = min(fastest_s, time.perf_counter() - start_s)
    return amount / fastest_s


def measure(mib: int, repeats: int) -> Rates:
    """All rates of this machine, with buffers of so many MiB; those of a GPU only where there is one."""
    size = mib << 20
    gpu_rates = measure_gpu(size, repeats) if torch.cuda.is_available() else dict.fromkeys(GPU_RATES)
    return Rates(**gpu_rates, adam=measure_adam(size // 4, repeats))


GPU_RATES = ("to_gpu", "to_cpu", "to_gpu_pageable", "to_cpu_pageable", "matrix")


def measure_gpu(size: int, repeats: int) -> dict[str, float]:
    """Both directions between CPU and GPU memory, and a bf16 matrix product."""
    found = {}
    on_gpu = torch.empty(size, dtype=torch.uint8, device="cuda")
    for name, pinned in (("", True), ("_pageable", False)):
        on_cpu = torch.empty(size, dtype=torch.uint8, pin_memory=pinned)
        on_cpu.zero_()  # pages that nobody has touched are not there yet
        for direction, source, target in (("to_gpu", on_cpu, on_gpu), ("to_cpu", on_gpu, on_cpu)):
            copy = partial(target.copy_, source, non_blocking=True)
            found[direction + name] = best_per_second(size, copy, repeats, gpu=True)
    side = 8192
    factor = torch.randn(side, side, dtype=torch.bfloat16, device="cuda")
    found["matrix"] = best_per_second(2 * side**3, lambda: factor @ factor, repeats, gpu=True)
    return found


def measure_adam(parameters: int, repeats: int) -> float:
    """Parameters per second of DeepSpeed's CPU optimizer, on as many threads as PyTorch has here."""
    from deepspeed.ops.adam import DeepSpeedCPUAdam

    from workshop.operators import load

    load(["CPUAdamBuilder"])
    weight = torch.nn.Parameter(torch.ones(parameters))
    weight.grad = torch.full_like(weight, 1e-3)
    return best_per_second(parameters, DeepSpeedCPUAdam([weight], lr=1e-5).step, repeats)


def run_facts(folder: Path) -> tuple[dict[str, Any], dict[str, Any], float | None]:
    """run.json, the configuration it names, and the mean step after the warm-up (s), None if none was measured.

    Raises WorkshopError for a folder that is no run with a DeepSpeed configuration.
    """
    if not (folder / "run.json").is_file():
        raise WorkshopError(f"{folder}: found no run.json, expected a run folder such as logs/EXERCISE/RUN")
    record = read_json(folder / "run.json")
    missing = [key for key in ("exercise", "config", "world_size", "settings", "model") if not record.get(key)]
    if missing:
        raise WorkshopError(f"{folder}/run.json: found no {missing[0]}, expected a run that trained with DeepSpeed")
    names = (f"{record['config']}.json", f"ds_{record['config']}.json")
    exercise = REPO / record["exercise"]
    folders = (exercise, exercise / "ds_configs", exercise / "ds_configs/tuning")
    paths = [place / name for place in folders for name in names if (place / name).is_file()]
    if not paths:
        raise WorkshopError(f"{folder}/run.json: config {record['config']}: expected a file of {exercise}")
    summary = json.loads((folder / "summary.json").read_text()) if (folder / "summary.json").exists() else {}
    speed = summary.get("train/steps_per_second")
    return record, read_json(paths[0]), 1 / speed if speed else None


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m workshop.offload_floor", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("run", type=Path, help="run folder of an exercise with offload")
    parser.add_argument("--mib", type=int, default=2048, help="size of the buffers that are copied (MiB)")
    parser.add_argument("--repeats", type=int, default=10, help="of each measurement; the fastest counts")
    options = parser.parse_args(arguments)
    record, config, step_s = run_facts(options.run)
    work = work_of(record, config)
    here = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    theirs = record.get("gpu_names") or ["no GPU"]
    elsewhere = "" if set(theirs) == set(here or ["no GPU"]) else f"{len(theirs)} x {theirs[0]}"
    print("\n".join(report(work, measure(options.mib, options.repeats), step_s, elsewhere)))


if __name__ == "__main__":
    main(sys.argv[1:])
