"""A wrong DeepSpeed configuration stops the run before anything is loaded, with the file and the place."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from deepspeed.accelerator import cuda_accelerator, real_accelerator
from deepspeed.accelerator.cuda_accelerator import CUDA_Accelerator

from tests.workshop.environment import ENVIRONMENT
from workshop.run_folder.errors import InputError
from workshop.settings import Settings
from workshop.training.deepspeed import ask_cuda_for_free_memory, deepspeed_config

CONFIGS = Path(__file__).parents[3] / "deepspeed-single-gpu" / "ds_configs"
SHIPPED = sorted(CONFIGS.rglob("*.json"))
AUTO = ("train_batch_size", "gradient_accumulation_steps", "gradient_clipping", "lr", "weight_decay", "enabled")


def settings(config: Path, **changes: str) -> Settings:
    return Settings.from_environment(ENVIRONMENT | {"FP16": "false", "CONFIG": str(config)} | changes)


def changed(tmp_path: Path, **changes: object) -> Path:
    path = tmp_path / "ds.json"
    path.write_text(json.dumps(json.loads((CONFIGS / "zero2_offload.json").read_text()) | changes, indent=2))
    return path


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_configuration_is_valid_and_leaves_settings_to_env_vars(path: Path) -> None:
    zero = deepspeed_config(settings(path))["zero_optimization"]
    if path.parent == CONFIGS:
        assert path.stem.startswith(f"zero{zero['stage']}")
        assert ("offload" in path.stem) == ("offload_optimizer" in zero)
    assert [key for key in AUTO if f'"{key}": "auto"' not in path.read_text()] == []


def test_text_that_is_not_json_names_line_and_column_and_a_missing_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "ds.json"
    path.write_text('{\n  "zero_optimization": {"stage": 2,}\n}\n')
    with pytest.raises(InputError, match=r"ds\.json:2:\d+: not JSON"):
        deepspeed_config(settings(path))
    with pytest.raises(InputError, match=r"nowhere\.json: No such file"):
        deepspeed_config(settings(tmp_path / "nowhere.json"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"zero_optimisation": {"stage": 3}}, "nothing reads 'zero_optimisation'"),
        ({"zero_optimization": {"stage": 4}}, r"zero_optimization\.stage is 4; expected 0 or 1 or 2 or 3"),
        ({"zero_optimization": {"stage": 2, "offload_optimiser": {}}}, r"zero_optimization\.offload_optimiser"),
        (
            {"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "gpu"}}},
            r"zero_optimization\.offload_optimizer\.device is 'gpu'",
        ),
        ({"train_micro_batch_size_per_gpu": 4}, "train_micro_batch_size_per_gpu is 4, but BATCH_SIZE is 32"),
        ({"fp16": {"enabled": True}}, r"fp16\.enabled is True, but FP16 is False"),
    ],
)
def test_B5_key_that_deepspeed_would_ignore_or_value_that_contradicts_a_setting_is_an_error(
    tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        deepspeed_config(settings(changed(tmp_path, **changes), BATCH_SIZE="32"))


def test_K7_auto_batch_is_micro_batch_times_accumulation_times_gpus_not_a_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert deepspeed_config(settings(changed(tmp_path, train_batch_size=32)))["train_batch_size"] == 32
    with pytest.raises(InputError, match="train_batch_size is 16, but BATCH_SIZE x GRAD_ACC x GPUs is 32"):
        deepspeed_config(settings(changed(tmp_path, train_batch_size=16)))


def test_optimizer_setting_that_the_json_overrides_is_an_error() -> None:
    with pytest.raises(InputError, match=r"OPTIMIZER=adamw_torch: .* has an optimizer of its own"):
        deepspeed_config(settings(CONFIGS / "zero2.json", OPTIMIZER="adamw_torch"))


def test_timers_without_deepspeed_are_an_error() -> None:
    assert deepspeed_config(settings(CONFIGS / "zero2.json", TIMERS="true"))["wall_clock_breakdown"]
    with pytest.raises(InputError, match=r"TIMERS=true: the timers are DeepSpeed's"):
        Settings.from_environment(ENVIRONMENT | {"TIMERS": "true"})


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
