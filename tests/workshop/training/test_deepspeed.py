"""A wrong DeepSpeed configuration stops the run before anything is loaded, with the file and the place."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from deepspeed.accelerator import cuda_accelerator, real_accelerator
from deepspeed.accelerator.cuda_accelerator import CUDA_Accelerator

from tests.workshop.environment import ENVIRONMENT
from workshop.record.errors import InputError
from workshop.settings.configuration import configuration_of
from workshop.settings.settings import Settings
from workshop.training.deepspeed import ask_cuda_for_free_memory, deepspeed_config

CONFIGS = Path(__file__).parents[3] / "deepspeed-single-gpu" / "ds_configs"


def settings(config: Path, **changes: str) -> Settings:
    return Settings.from_environment(ENVIRONMENT | {"FP16": "false", "CONFIG": str(config)} | changes)


def changed(tmp_path: Path, **changes: object) -> Path:
    path = tmp_path / f"{len([*tmp_path.iterdir()])}.json"  # a process reads a configuration once
    path.write_text(json.dumps(json.loads((CONFIGS / "zero2_offload.json").read_text()) | changes, indent=2))
    return path


def test_K7_auto_batch_is_batch_times_accumulation_times_gpus(tmp_path: Path) -> None:
    two = {"WORLD_SIZE": "2"}
    assert deepspeed_config(settings(changed(tmp_path, train_batch_size=32), **two))["train_batch_size"] == 32
    with pytest.raises(InputError, match="train_batch_size is 16, but BATCH_SIZE x GRAD_ACC x GPUs is 32"):
        deepspeed_config(settings(changed(tmp_path, train_batch_size=16), **two))


@pytest.mark.parametrize("gpus", ["MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f", "GPU-8932f937,GPU-45d71c87", "4,5", ""])
def test_uuid_in_cuda_visible_devices_does_not_end_stages_1_and_2(monkeypatch: pytest.MonkeyPatch, gpus: str) -> None:
    """DeepSpeed itself reads the variable as numbers where it asks NVML how much memory is free."""
    cuda = CUDA_Accelerator()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", gpus)
    monkeypatch.setattr(cuda_accelerator, "pynvml", SimpleNamespace(nvmlDeviceGetHandleByIndex=lambda index: index))
    monkeypatch.setattr(real_accelerator, "ds_accelerator", cuda)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda device: {0: (7, 80), None: (5, 80)}[device])
    ask_cuda_for_free_memory()
    assert (cuda.available_memory(0), cuda.available_memory()) == (7, 5)


# A loss as small as a large model's gradients are; of each configuration the loss after six steps.
SIX_STEPS_IN_FP16 = """
import json, sys
import deepspeed, torch
from deepspeed.accelerator import get_accelerator
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # 40 s to compile; as in workshop/kernels/operators.py
type(get_accelerator()).is_fp16_supported = lambda self: True  # CPUs compute in it, too
torch.distributed.init_process_group("gloo", init_method=sys.argv[1], rank=0, world_size=1)
for path in sys.argv[2:]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
    read = json.load(open(path))
    config = {name: read[name] for name in ("fp16", "zero_optimization")}
    config["fp16"]["enabled"] = True
    config |= {"train_micro_batch_size_per_gpu": 8, "zero_allow_untested_optimizer": True}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    inputs, targets = torch.randn(8, 16, dtype=torch.half), torch.randn(8, 4)
    for _ in range(6):
        loss = (engine(inputs).float() - targets).square().mean()
        engine.backward(loss / 1000)
        engine.step()
    print("loss", loss.item())
"""


def test_stage_0_in_fp16_learns_as_stage_1(tmp_path: Path) -> None:
    """DeepSpeed 0.19.8 scales the loss for ZeRO's optimizers only, but in stage 0 also divides the gradients."""
    configs = [str(CONFIGS / f"zero{stage}.json") for stage in (0, 1)]
    command = [sys.executable, "-c", SIX_STEPS_IN_FP16, f"file://{tmp_path}/meeting", *configs]
    job = subprocess.run(command, env=os.environ | {"LOCAL_RANK": "0"}, capture_output=True, text=True)
    stage_0, stage_1 = (float(line.split()[1]) for line in job.stdout.splitlines() if line.startswith("loss "))
    assert stage_0 < 1.2 * stage_1, job.stderr[-2000:]
    other = changed(tmp_path, zero_optimization={"stage": 0})
    assert "expected fp16.loss_scale 1" in configuration_of(settings(other, FP16="true")).notes[-1]
    assert not configuration_of(settings(CONFIGS / "zero0.json", FP16="true")).notes
