"""A configuration that would be ignored, or cannot work, is an error that names its file before anything is loaded."""

import importlib
import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from tests.launching import REPO
from workshop.errors import WorkshopError


@pytest.fixture
def by_hand_settings(monkeypatch: pytest.MonkeyPatch):
    """by-hand/by_hand_settings.py, which the scripts beside it import by this name."""
    monkeypatch.syspath_prepend(REPO / "by-hand")
    return importlib.import_module("by_hand_settings")


@pytest.fixture
def common(by_hand_settings: ModuleType):
    """by-hand/common.py."""
    yield importlib.import_module("common")
    del sys.modules["common"]


def settings(path: Path, **others: object) -> SimpleNamespace:
    usual = {"batch_size": 2, "grad_acc": 2, "learning_rate": 1e-3, "weight_decay": 0.0, "fp16": False, "bf16": True}
    usual["optimizer"] = "adamw_torch_fused"
    return SimpleNamespace(config=str(path), **usual | others)


@pytest.mark.parametrize(
    ("content", "world_size", "expected"),
    [
        ({"reshard_after_forward": True, "offload": True}, 2, r"offload is True; expected keys out of"),
        ({"reshard_after_forward": 1}, 2, r"reshard_after_forward is 1; expected keys out of reshard_after_forward"),
        ({"replicas": 2}, 4, "no reshard_after_forward"),
        ({"reshard_after_forward": True, "replicas": 2}, 3, "2 replicas of 3 GPUs"),
        ({"reshard_after_forward": True, "replicas": 2}, 2, "2 replicas of 2 GPUs"),
    ],
)
def test_fsdp_file_that_cannot_work_is_refused(by_hand_settings, tmp_path: Path, content, world_size, expected) -> None:
    path = tmp_path / "own.json"
    path.write_text(json.dumps(content))
    with pytest.raises(WorkshopError, match=rf"own.json: .*{expected}"):
        by_hand_settings.FSDPConfig.read(settings(path), world_size)


def test_neighbouring_ranks_share_a_copy(by_hand_settings) -> None:
    hybrid = by_hand_settings.FSDPConfig.read(settings(REPO / "by-hand/fsdp_configs/hybrid_shard.json"), 8)
    assert (hybrid.mesh_shape, hybrid.mesh_names) == ((2, 4), ("replicate", "shard"))
    assert by_hand_settings.FSDPConfig.read(settings(REPO / "by-hand/fsdp_configs/full_shard.json"), 8).mesh_shape == (
        8,
    )


@pytest.mark.parametrize("path", sorted((REPO / "by-hand/ds_configs").iterdir()), ids=lambda path: path.stem)
def test_zero_file_has_the_settings_and_no_optimizer_of_its_own(common, path: Path) -> None:
    config = common.zero_config(settings(path))
    assert "auto" not in json.dumps(config)
    assert "optimizer" not in config
    assert (config["train_micro_batch_size_per_gpu"], config["gradient_accumulation_steps"]) == (2, 2)
    assert config["bf16"] == {"enabled": True}


def test_textbook_files_differ_from_the_usual_ones_in_what_they_are_named_for(common) -> None:
    for stage, keys in ((2, {"use_multi_rank_bucket_allreduce"}), (3, {"stage3_param_persistence_threshold"})):
        usual, textbook = (
            common.zero_config(settings(REPO / f"by-hand/ds_configs/zero{stage}{name}.json"))
            for name in ("", "_textbook")
        )
        added = textbook.pop("zero_optimization").items() - usual.pop("zero_optimization").items()
        assert keys <= dict(added).keys() and textbook == usual


def test_zero_file_that_contradicts_the_settings_is_refused(common, tmp_path: Path) -> None:
    path = tmp_path / "own.json"
    path.write_text(json.dumps({"gradient_clipping": 0.5, "zero_optimization": {"stage": 1}}))
    with pytest.raises(WorkshopError, match=r"own.json: gradient_clipping is 0.5"):
        common.zero_config(settings(path))


def test_optimizer_is_the_scripts_whatever_the_file_has(common) -> None:
    path = REPO / "by-hand/ds_configs/zero1.json"
    assert "optimizer" in json.loads(path.read_text())
    assert "optimizer" not in common.zero_config(settings(path, optimizer="adamw_torch"))


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({"reshard_after_forward": True}, "nothing reads 'reshard_after_forward'"),  # fsdp.py's
        ({"bf16": {"enabled": True}}, r"found no zero_optimization\.stage, expected 0, 1, 2 or 3"),
        ({"zero_optimization": {"overlap_comm": True}}, r"found no zero_optimization\.stage"),
    ],
)
def test_file_that_is_none_of_zero_is_refused(common, tmp_path: Path, content: dict, expected: str) -> None:
    path = tmp_path / "own.json"
    path.write_text(json.dumps(content))
    with pytest.raises(WorkshopError, match=rf"own.json: {expected}"):
        common.zero_config(settings(path))


@pytest.mark.parametrize(
    ("own", "expected"), [({"FP16": "true"}, "gradient scaler"), ({"PROFILE": "1:2"}, "the scripts do not show it")]
)
def test_setting_that_the_scripts_leave_without_effect_is_refused(by_hand_settings, own: dict, expected: str) -> None:
    environment = {"BF16": "false", "FP16": "false", "RUN_DIR": "/tmp", "OUTPUT_DIR": "out", "EXPERIMENT_NAME": "x"}
    environment |= {"TRAIN_SIZE": "8", "EVAL_SIZE": "8", "MAX_LENGTH": "64", "NUM_EPOCHS": "1", "BATCH_SIZE": "1"}
    environment |= {"GRAD_ACC": "1", "LEARNING_RATE": "1", "WEIGHT_DECAY": "0", "VOCAB_SIZE": "8", "HIDDEN_SIZE": "8"}
    environment |= {"NUM_LAYERS": "1", "NUM_HEADS": "1", "FF_DIM": "8", "SEQ_LENGTH": "64"}
    with pytest.raises(WorkshopError, match=expected):
        by_hand_settings.ByHandSettings.from_environment(environment | own, REPO / "by-hand/env_vars.sh")
