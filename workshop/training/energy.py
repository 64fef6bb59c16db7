"""Load and energy counter of this rank's GPU, from NVML.

NVML numbers all GPUs of the node, whatever CUDA_VISIBLE_DEVICES says, so the GPU is found by its UUID.
"""

from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime
from functools import cached_property
from types import ModuleType
from typing import Any, NamedTuple

import torch


class Reading(NamedTuple):  # None: the GPU does not report it
    local_time: datetime  # as in nvidia-smi's log
    joules: float | None = None  # since the driver was loaded
    load_percent: float | None = None  # the share of the last moment in which a kernel ran


class GpuCounters:
    """Reads in a thread: NVML takes 4 to 7 ms to answer, up to a tenth of a short step."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1)

    @cached_property
    def _nvml(self) -> tuple[ModuleType, Any] | None:
        """NVML and its handle for this rank's GPU."""
        import pynvml  # of nvidia-ml-py

        try:
            pynvml.nvmlInit()
            uuid = torch.cuda.get_device_properties(torch.cuda.current_device()).uuid
            return pynvml, pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
        except pynvml.NVMLError:
            return None

    def read(self) -> Future[Reading]:
        """Read the counters now, while the training continues."""
        return self._thread.submit(_ask, self._nvml)  # looked up here: the thread has no current GPU


def _ask(found: tuple[ModuleType, Any] | None) -> Reading:
    now = datetime.now()
    if found is None:
        return Reading(now)
    nvml, gpu = found
    joules = load_percent = None
    with suppress(nvml.NVMLError):
        joules = nvml.nvmlDeviceGetTotalEnergyConsumption(gpu) / 1000
    with suppress(nvml.NVMLError):
        load_percent = nvml.nvmlDeviceGetUtilizationRates(gpu).gpu
    return Reading(now, joules, load_percent)
