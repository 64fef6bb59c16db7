"""A wrong DeepSpeed configuration stops the run before anything is loaded, with the file and the place."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from deepspeed.accelerator import cuda_accelerator, real_accelerator
from deepspeed.accelerator.cuda_accelerator import CUDA_Accelerator

from tests.workshop.environment import ENVIRONMENT
from workshop.run_folder.errors import InputError
from workshop.run_folder.settings import Settings
from workshop.training.deepspeed import ask_cuda_for_free_memory, deepspeed_config

CONFIGS = Path(__file__).parents[3] / "deepspeed-single-gpu" / "ds_configs"


def settings(config: Path, **changes: str) -> Settings:
    return Settings.from_environment(ENVIRONMENT | {"FP16": "false", "CONFIG": str(config)} | changes)


def changed(tmp_path: Path, **changes: object) -> Path:
    path = tmp_path / "ds.json"
    path.write_text(json.dumps(json.loads((CONFIGS / "zero2_offload.json").read_text()) | changes, indent=2))
    return path


def test_K7_auto_batch_is_batch_times_accumulation_times_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert deepspeed_config(settings(changed(tmp_path, train_batch_size=32)))["train_batch_size"] == 32
    with pytest.raises(InputError, match="train_batch_size is 16, but BATCH_SIZE x GRAD_ACC x GPUs is 32"):
        deepspeed_config(settings(changed(tmp_path, train_batch_size=16)))


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
