"""A configuration that would be ignored, or cannot work, is an error that names its file before anything is loaded."""

import importlib
import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from tests.launching import REPO
from workshop.run_folder.env_file import sourced
from workshop.run_folder.errors import InputError


@pytest.fixture
def by_hand_settings(monkeypatch: pytest.MonkeyPatch):
    """further/by-hand/by_hand_settings.py, which the scripts beside it import by this name."""
    monkeypatch.syspath_prepend(REPO / "further/by-hand")
    return importlib.import_module("by_hand_settings")


@pytest.fixture
def common(by_hand_settings: ModuleType):
    """further/by-hand/common.py."""
    yield importlib.import_module("common")
    del sys.modules["common"]


def settings(path: Path, content: dict | None = None) -> SimpleNamespace:
    """With that configuration, which is written first if its content is given."""
    if content is not None:
        path.write_text(json.dumps(content))
    usual = {"batch_size": 2, "grad_acc": 2, "learning_rate": 1e-3, "weight_decay": 0.0, "fp16": False, "bf16": True}
    return SimpleNamespace(config=str(path), optimizer="adamw_torch_fused", **usual)


@pytest.mark.parametrize(
    ("content", "world_size", "expected"),
    [
        ({"reshard_after_forward": True, "offload": True}, 2, "nothing reads 'offload'; expected keys out of"),
        ({"reshard_after_forward": 1}, 2, "reshard_after_forward is 1; expected true or false"),
        ({"replicas": 2}, 4, "no reshard_after_forward"),
        ({"reshard_after_forward": True, "replicas": 2}, 3, "replicas is 2, which cannot split 3 GPUs"),
        ({"reshard_after_forward": True, "replicas": 2}, 2, "replicas is 2, which cannot split 2 GPUs"),
    ],
)
def test_fsdp_file_that_cannot_work_is_refused(by_hand_settings, tmp_path: Path, content, world_size, expected) -> None:
    with pytest.raises(InputError, match=rf"own.json: .*{expected}"):
        by_hand_settings.FSDPConfig.read(settings(tmp_path / "own.json", content), world_size)


@pytest.mark.parametrize("path", sorted((REPO / "further/by-hand/ds_configs").iterdir()), ids=lambda path: path.stem)
def test_zero_file_has_the_settings_and_no_optimizer_of_its_own(common, path: Path) -> None:
    config = common.zero_config(settings(path))
    assert "auto" not in json.dumps(config)
    assert "optimizer" not in config
    assert (config["train_micro_batch_size_per_gpu"], config["gradient_accumulation_steps"]) == (2, 2)
    assert config["bf16"] == {"enabled": True}


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({"gradient_clipping": 0.5, "zero_optimization": {"stage": 1}}, r"gradient_clipping is 0.5"),
        ({"reshard_after_forward": True}, "no file of DeepSpeed"),  # fsdp.py's
        ({"bf16": {"enabled": True}}, r"found no zero_optimization\.stage, expected 0, 1, 2 or 3"),
        ({"zero_optimization": {"overlap_comm": True}}, r"found no zero_optimization\.stage"),
        ({"zero_optimization": {"stage": 2, "reduce_bucket_size": "auto"}}, ".*reduce_bucket_size is 'auto'; expected"),
        ({"zero_optimization": {"stage": 2}, "scheduler": {"type": "WarmupLR"}}, "nothing reads 'scheduler' here"),
    ],
)
def test_zero_file_that_cannot_work_is_refused(common, tmp_path: Path, content: dict, expected: str) -> None:
    with pytest.raises(InputError, match=rf"own.json: {expected}"):
        common.zero_config(settings(tmp_path / "own.json", content))


@pytest.mark.parametrize(
    ("own", "expected"),
    [({"FP16": "true"}, "gradient scaler"), ({"GRADIENT_CHECKPOINTING": "true"}, "the scripts do not show it")],
)
def test_setting_that_the_scripts_leave_without_effect_is_refused(by_hand_settings, own: dict, expected: str) -> None:
    file = REPO / "further/by-hand/env_vars.sh"
    given = {"BF16": "false", "FP16": "false", "RUN_DIR": "/tmp", "REPO": str(REPO)} | own
    with pytest.raises(InputError, match=expected):
        by_hand_settings.ByHandSettings.from_environment(sourced(file, given), file)
