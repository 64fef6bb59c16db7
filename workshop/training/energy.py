"""The energy that this rank's GPU has used: NVML's counter misses nothing, nvidia-smi's watts are samples.

NVML numbers the node's GPUs and knows no CUDA_VISIBLE_DEVICES, so the GPU is found by its UUID.
"""

from datetime import datetime
from functools import cached_property
from types import ModuleType
from typing import Any

import torch

Reading = tuple[datetime, float | None]  # the node's local time, as nvidia-smi's log has it; joules


class EnergyCounter:
    """Counts since the driver was loaded. It counts nothing without nvidia-ml-py, or on a GPU that has no counter."""

    @cached_property
    def _nvml(self) -> tuple[ModuleType, Any] | None:
        """NVML and its handle of this rank's GPU."""
        try:
            import pynvml  # of nvidia-ml-py
        except ImportError:
            return None
        try:
            pynvml.nvmlInit()
            uuid = torch.cuda.get_device_properties(torch.cuda.current_device()).uuid
            return pynvml, pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
        except pynvml.NVMLError:
            return None

    def read(self) -> Reading:
        """The time, and the joules so far or None."""
        if self._nvml is None:
            return datetime.now(), None
        nvml, gpu = self._nvml
        try:
            return datetime.now(), nvml.nvmlDeviceGetTotalEnergyConsumption(gpu) / 1000
        except nvml.NVMLError:
            return datetime.now(), None
