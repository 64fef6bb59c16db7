"""Measure the rates of this machine that limit a step with CPU offload (offload_lower_bound.py)."""

import time
from collections.abc import Callable
from functools import partial

import torch

from workshop.run_folder.printable import markdown

NOT_MEASURED = "not measured"
UNITS = {"GB/s": 1e9, "billion parameters/s": 1e9, "TFLOP/s": 1e12}
# By name: bytes between CPU and GPU, from pinned and from pageable memory; bytes read and written by a = b + s c on all
# processors (STREAM's triad), without the line of memory that a write may read first; parameters updated by DeepSpeed's
# cpu_adam; operations of a bf16 matrix product.
UNIT_OF = {
    **dict.fromkeys(("to gpu", "to cpu", "to gpu pageable", "to cpu pageable", "cpu memory"), "GB/s"),
    **{"adam": "billion parameters/s", "matrix": "TFLOP/s"},
}
Rates = dict[str, float | None]  # per second; None: not measured, as without a GPU


def table(rates: Rates) -> list[str]:
    """Return the rates as lines of Markdown."""
    measured = {
        name: f"{rates[name] / UNITS[unit]:.2f} {unit}" if rates[name] else NOT_MEASURED
        for name, unit in UNIT_OF.items()
    }
    return markdown(("rate", "measured"), measured.items()).split("\n")


def measure(mib: int, repeats: int) -> Rates:
    """Measure all rates with buffers of so many MiB; a GPU's only where there is one."""
    size = mib << 20
    first, second, result = (torch.ones(size // 4) for _ in range(3))
    triad = best_per_second(3 * size, lambda: torch.add(first, second, alpha=2.0, out=result), repeats)
    of_gpu = measure_gpu(size, repeats) if torch.cuda.is_available() else {}
    return dict.fromkeys(UNIT_OF) | of_gpu | {"cpu memory": triad, "adam": measure_adam(size // 4, repeats)}


def measure_gpu(size: int, repeats: int) -> Rates:
    """Measure copies between CPU and GPU memory, and a bf16 matrix product."""
    found = {}
    on_gpu = torch.empty(size, dtype=torch.uint8, device="cuda")
    for name, pinned in (("", True), (" pageable", False)):
        on_cpu = torch.empty(size, dtype=torch.uint8, pin_memory=pinned)
        on_cpu.zero_()  # allocates the pages
        for direction, source, target in (("to gpu", on_cpu, on_gpu), ("to cpu", on_gpu, on_cpu)):
            copy = partial(target.copy_, source, non_blocking=True)
            found[direction + name] = best_per_second(size, copy, repeats, gpu=True)
    side = 8192
    factor = torch.randn(side, side, dtype=torch.bfloat16, device="cuda")
    return found | {"matrix": best_per_second(2 * side**3, lambda: factor @ factor, repeats, gpu=True)}


def measure_adam(parameters: int, repeats: int) -> float:
    """Measure parameters per second of DeepSpeed's CPU optimizer, on PyTorch's number of threads."""
    from deepspeed.ops.adam import DeepSpeedCPUAdam

    from workshop.kernels.operators import load

    load(["cpu_adam"])
    weight = torch.nn.Parameter(torch.ones(parameters))
    weight.grad = torch.full_like(weight, 1e-3)
    return best_per_second(parameters, DeepSpeedCPUAdam([weight], lr=1e-5).step, repeats)


def best_per_second(amount: float, work: Callable[[], object], repeats: int, gpu: bool = False) -> float:
    """Return the amount per second of the fastest repetition, after one as warm-up."""
    fastest_s = float("inf")
    for repeat in range(repeats + 1):
        start_s = time.perf_counter()
        work()
        if gpu:
            torch.cuda.synchronize()
        if repeat:
            fastest_s = min(fastest_s, time.perf_counter() - start_s)
    return amount / fastest_s
