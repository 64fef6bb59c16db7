"""What is beside the allocated tensors: fragments that PyTorch's allocator holds, CUDA's and NCCL's own memory.

Neither can be computed from the model. Both are measured: overhead.json holds for each method, on one GPU and on
several, the median over the configurations of logs/reference with the least and the largest. `python -m tools plan
--fit` writes it anew.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FILE = Path(__file__).with_name("overhead.json")
HOW = (
    "Fitted by `python -m tools plan --fit` to the completed runs of logs/reference. reserved_per_allocated: measured "
    "peak_mem_reserved_mib / predicted allocated; beside_reserved_mib: nvidia-smi's peak memory.used - "
    "peak_mem_reserved_mib. [least, median, largest] over configurations (repeats: their median)."
)


@dataclass(frozen=True)
class Measured:
    """One configuration: its method and whether on several GPUs, and what was measured and predicted, MiB."""

    key: str
    method: str
    several_gpus: bool
    allocated_mib: float  # predicted
    reserved_mib: float
    nvidia_smi_mib: float


@dataclass(frozen=True)
class Overhead:
    """Each: least, median, largest. Attributes: reserved: per allocated; beside: beside reserved, MiB."""

    reserved: tuple[float, float, float]
    beside: tuple[float, float, float]


Fitted = dict[str, Overhead]


def fit(measured: Iterable[Measured]) -> Fitted:
    """By `method, GPUs`, by GPUs alone for a method without a run there, and over all."""
    groups: dict[str, list[Measured]] = {}
    for one in measured:
        for name in _names(one.method, one.several_gpus):
            groups.setdefault(name, []).append(one)
    return {
        name: Overhead(
            _range([one.reserved_mib / one.allocated_mib for one in group]),
            _range([one.nvidia_smi_mib - one.reserved_mib for one in group]),
        )
        for name, group in sorted(groups.items())
    }


def _names(method: str, several_gpus: bool) -> tuple[str, str, str]:
    gpus = "several GPUs" if several_gpus else "one GPU"
    return f"{method}, {gpus}", gpus, "all"


def _range(values: list[float]) -> tuple[float, float, float]:
    return round(min(values), 4), round(statistics.median(values), 4), round(max(values), 4)


def of(fitted: Fitted, method: str, several_gpus: bool) -> Overhead:
    """The nearest group that has runs."""
    return next(fitted[name] for name in _names(method, several_gpus) if name in fitted)


def save(fitted: Fitted) -> None:
    groups = {
        name: {"reserved_per_allocated": one.reserved, "beside_reserved_mib": one.beside}
        for name, one in fitted.items()
    }
    FILE.write_text(json.dumps({"how": HOW, "groups": groups}, indent=1) + "\n")


@cache
def load() -> Fitted:
    groups = json.loads(FILE.read_text())["groups"]
    return {
        name: Overhead(tuple(one["reserved_per_allocated"]), tuple(one["beside_reserved_mib"]))
        for name, one in groups.items()
    }
