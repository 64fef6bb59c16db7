"""A machine divided for several runs at a time: each has GPUs and processors that no other run uses."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from typing import Any

from evidence.counted import counted
from tools.errors import InputError


@dataclass(frozen=True)
class Lane:
    """Attributes: gpus: as CUDA_VISIBLE_DEVICES names them, none on a machine without; processors: their numbers."""

    gpus: tuple[str, ...]
    processors: tuple[int, ...]

    @property
    def environment(self) -> dict[str, str]:
        return {"CUDA_VISIBLE_DEVICES": ",".join(self.gpus)} if self.gpus else {}

    def bind(self, process: subprocess.Popen[Any]) -> None:
        """Only the lane's processors, for the process and all it will start, where the system can do that."""
        if hasattr(os, "sched_setaffinity"):  # macOS cannot
            os.sched_setaffinity(process.pid, self.processors)


def lanes(number: int) -> list[Lane]:
    """This machine in `number` equal lanes; what does not divide stays unused.

    Raises:
        InputError: fewer processors, or GPUs where there are any, than lanes.
    """
    processors, gpus = _processors(), _gpus()
    for what, there in (("processor", len(processors)), ("GPU", len(gpus) or number)):
        if not 1 <= number <= there:
            raise InputError(f"--jobs {number}: this machine has {counted(there, what)}; expected from 1 to {there}")
    cores, cards = len(processors) // number, len(gpus) // number
    return [
        Lane(tuple(gpus[lane * cards : (lane + 1) * cards]), tuple(processors[lane * cores : (lane + 1) * cores]))
        for lane in range(number)
    ]


def _processors() -> list[int]:
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))


def _gpus() -> list[str]:
    """CUDA's names of the GPUs that may be used."""
    if "CUDA_VISIBLE_DEVICES" in os.environ:
        return [name.strip() for name in os.environ["CUDA_VISIBLE_DEVICES"].split(",") if name.strip()]
    try:
        found = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout
    except FileNotFoundError:
        return []
    return [str(index) for index in range(sum(line.startswith("GPU") for line in found.splitlines()))]
