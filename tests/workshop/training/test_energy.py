"""A run's joules are of its timed steps and its own GPU; NVML is a module with the real one's names: no GPU here."""

import sys
import threading
from datetime import datetime, timedelta
from types import SimpleNamespace

import pytest
import torch

from tests.workshop.training.test_callbacks import answered, train
from tests.workshop.training.test_callbacks import clock as clock
from tests.workshop.training.test_callbacks import recorder as recorder
from workshop.training import energy


@pytest.fixture
def nvml(clock, monkeypatch):
    """NVML of a GPU that draws 300 W, which it knows by its UUID alone."""
    answers = {"is_available": True, "current_device": 0, "mem_get_info": (0, 1)}
    answers |= {"get_device_properties": SimpleNamespace(uuid="6b6c"), "synchronize": None}
    for name, answer in (answers | {"reset_peak_memory_stats": None}).items():
        monkeypatch.setattr(torch.cuda, name, lambda *_, answer=answer: answer)
    now = SimpleNamespace(now=lambda: datetime(2026, 11, 24) + timedelta(seconds=clock.now_s))
    monkeypatch.setattr(energy, "datetime", now)
    # The thread answers at once: the clock of these tests stands still meanwhile.
    monkeypatch.setattr(energy.ThreadPoolExecutor, "submit", lambda _, ask, gpu: answered(ask(gpu)))
    module = SimpleNamespace(NVMLError=ZeroDivisionError, nvmlInit=lambda: None)
    module.nvmlDeviceGetHandleByUUID = {"GPU-6b6c": 1}.__getitem__
    module.nvmlDeviceGetTotalEnergyConsumption = lambda gpu: int(gpu * 300_000 * clock.now_s)  # mJ
    module.nvmlDeviceGetUtilizationRates = lambda gpu: SimpleNamespace(gpu=5 * gpu)
    monkeypatch.setitem(sys.modules, "pynvml", module)
    return module


def test_energy_of_evaluations_and_of_the_warm_up_is_not_the_steps(recorder, clock, nvml):
    train(recorder, clock, [9.0] * 5 + [1.0] * 15, steps_per_epoch=8)  # with a minute's evaluation after steps 8 and 16
    summary = recorder.summary()
    assert (summary["timed_s"], summary["energy_j"]) == (15, 15 * 300)
    assert summary["real_tokens_per_joule"] == pytest.approx(4096 / 300)
    assert (summary["timed_start"], summary["timed_end"]) == (
        "2026/11/24 00:00:45.000000",
        "2026/11/24 00:03:00.000000",
    )


@pytest.mark.parametrize("why", ["no nvidia-ml-py", "no counter", "MIG", "under 10 s", "went on"])
def test_run_whose_joules_nobody_counts_does_not_fail(why, recorder, clock, nvml, monkeypatch):
    if why == "no nvidia-ml-py":
        monkeypatch.setitem(sys.modules, "pynvml", None)
    elif why == "no counter":
        nvml.nvmlDeviceGetTotalEnergyConsumption = lambda _: 1 // 0
    elif why == "MIG":
        nvml.nvmlDeviceGetHandleByUUID = lambda _: 1 // 0
    train(recorder, clock, [0.9 if why == "under 10 s" else 2.0] * 15)
    for kept in (recorder.readings, recorder.samples):
        del kept[: 12 * (why == "went on")]
    summary = recorder.summary()
    assert summary.get("energy_j") is None and summary.get("real_tokens_per_joule") is None
    assert ("timed_s" in summary) == (why != "went on")
    assert summary["avg_gpu_util_%"] == (None if why in ("no nvidia-ml-py", "MIG") else 5)


def test_training_does_not_wait_for_nvml(monkeypatch):
    asked, answer = threading.Event(), threading.Event()
    counters = energy.GpuCounters()
    counters._nvml = None
    monkeypatch.setattr(energy, "_ask", lambda _: (asked.set(), answer.wait(60))[1])
    reading = counters.read()
    assert asked.wait(60) and not reading.done()
    answer.set()
    assert reading.result(60)
