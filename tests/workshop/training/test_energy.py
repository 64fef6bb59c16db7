"""A run's joules are of its timed steps, of its own GPU, and none where nothing counts them.

No GPU here: NVML is a module with the names of the real one, CUDA answers as told, the clock is moved by hand.
"""

import sys
from datetime import datetime, timedelta
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch

from tests.workshop.training.test_callbacks import Clock, train
from tests.workshop.training.test_callbacks import clock as clock
from tests.workshop.training.test_callbacks import recorder as recorder
from workshop.training import energy
from workshop.training.callbacks import StepRecorder

UUID = "6b6c2f0e-0000-1111-2222-333344445555"
POWER_W = 300.0


class NVMLError(Exception):
    pass


@pytest.fixture
def gpu(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A GPU that draws 300 W; NVML knows it by its UUID alone."""
    answers = dict.fromkeys(("memory_allocated", "memory_reserved", "max_memory_allocated", "max_memory_reserved"), 0)
    answers |= {
        "is_available": True,
        "current_device": 0,
        "synchronize": None,
        "mem_get_info": (0, 1),
        "utilization": 5,
    }
    answers |= {"reset_peak_memory_stats": None, "get_device_properties": SimpleNamespace(uuid=UUID)}
    for name, answer in answers.items():
        monkeypatch.setattr(torch.cuda, name, lambda *_, answer=answer: answer)
    now = SimpleNamespace(now=lambda: datetime(2026, 11, 24) + timedelta(seconds=clock.now_s))
    monkeypatch.setattr(energy, "datetime", now)
    nvml = ModuleType("pynvml")
    nvml.NVMLError, nvml.nvmlInit = NVMLError, lambda: None
    nvml.nvmlDeviceGetHandleByUUID = {f"GPU-{UUID}": "our GPU"}.__getitem__
    counters = {"our GPU": lambda: int(1000 * POWER_W * clock.now_s)}  # mJ
    nvml.nvmlDeviceGetTotalEnergyConsumption = lambda handle: counters[handle]()
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    return nvml


def test_energy_of_evaluations_and_of_the_warm_up_is_not_the_steps(recorder: StepRecorder, clock: Clock, gpu) -> None:
    train(recorder, clock, [9.0] * 5 + [1.0] * 15, steps_per_epoch=8)  # with a minute's evaluation after steps 8 and 16
    summary = recorder.summary()
    assert (summary["timed_s"], summary["energy_j"]) == (15, 15 * POWER_W)
    assert summary["real_tokens_per_joule"] == pytest.approx(15 * 4096 / (15 * POWER_W))
    assert (summary["timed_start"], summary["timed_end"]) == (
        "2026/11/24 00:00:45.000000",
        "2026/11/24 00:03:00.000000",
    )


@pytest.mark.parametrize("why", ["no nvidia-ml-py", "no counter", "MIG", "under 10 s"])
def test_run_whose_joules_nobody_counts_does_not_fail(
    why: str, recorder: StepRecorder, clock: Clock, gpu: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fails(error: Exception) -> None:
        raise error

    if why == "no nvidia-ml-py":
        monkeypatch.setitem(sys.modules, "pynvml", None)
        monkeypatch.setattr(torch.cuda, "utilization", lambda: fails(ModuleNotFoundError("nvidia-ml-py")))
    elif why == "no counter":
        gpu.nvmlDeviceGetTotalEnergyConsumption = lambda _: fails(NVMLError("not supported"))
    elif why == "MIG":
        gpu.nvmlDeviceGetHandleByUUID = lambda _: fails(NVMLError("not found"))
    train(recorder, clock, [0.9 if why == "under 10 s" else 2.0] * 15)
    summary = recorder.summary()
    assert (summary["energy_j"], summary["real_tokens_per_joule"]) == (None, None)
    assert summary["timed_s"] > 8
    assert summary["avg_gpu_util_%"] == (None if why == "no nvidia-ml-py" else 5)


def test_run_that_went_on_has_no_joules_of_the_attempt_before(recorder: StepRecorder, clock: Clock, gpu) -> None:
    train(recorder, clock, [2.0] * 15)
    recorder.readings = recorder.readings[12:]
    assert "energy_j" not in recorder.summary()
