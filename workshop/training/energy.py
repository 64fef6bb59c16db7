"""Load and energy counter of this rank's GPU, from NVML.

NVML numbers all GPUs of the node, whatever CUDA_VISIBLE_DEVICES says, so the GPU is found by its UUID.
"""

from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime
from functools import cache
from typing import Any, NamedTuple

import pynvml  # of nvidia-ml-py
import torch


class Reading(NamedTuple):  # None: the GPU does not report it
    local_time: datetime  # as in nvidia-smi's log
    joules: float | None = None  # since the driver was loaded
    load_percent: float | None = None  # the share of the last moment in which a kernel ran


class GpuCounters:
    """Reads in a thread: NVML takes 4 to 7 ms to answer, up to a tenth of a short step."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1)

    def read(self) -> Future[Reading]:
        """Read the counters now, while the training continues."""
        # The handle is found here: the thread has no current GPU.
        return self._thread.submit(_read, _handle(torch.cuda.current_device()))


@cache
def _handle(device: int) -> Any:
    """Return NVML's handle of a GPU; None without NVML."""
    with suppress(pynvml.NVMLError):
        pynvml.nvmlInit()
        return pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{torch.cuda.get_device_properties(device).uuid}")


def _read(gpu: Any) -> Reading:
    now, joules, load_percent = datetime.now(), None, None
    with suppress(pynvml.NVMLError):
        joules = pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu) / 1000
    with suppress(pynvml.NVMLError):
        load_percent = pynvml.nvmlDeviceGetUtilizationRates(gpu).gpu
    return Reading(now, joules, load_percent)
