"""A wrong DeepSpeed configuration stops the run before anything is loaded, with the file and the place."""

import json
from pathlib import Path

import pytest

from tests.workshop.environment import ENVIRONMENT
from workshop.errors import WorkshopError
from workshop.settings import Settings
from workshop.training.deepspeed import deepspeed_config

CONFIGS = Path(__file__).parents[3] / "deepspeed-single-gpu" / "ds_configs"


# Other variants in tuning/: what each is a variant of, and the keys that it changes.
OTHERS = {
    name: (name, plain, keys)
    for name, plain, keys in (
        ("zero2_small_buckets", "zero2", {"reduce_bucket_size", "allgather_bucket_size"}),
        ("zero2_no_overlap", "zero2", {"overlap_comm"}),
        ("zero2_not_contiguous", "zero2", {"overlap_comm", "contiguous_gradients"}),
        ("zero2_fp32_gradients", "zero2", {"communication_data_type"}),
        ("zenflow", "zero2_offload", {"zenflow"}),
        ("superoffload", "zero3_offload", {"offload_optimizer", "offload_param", "sub_group_size"}),
    )
}


def settings(config: Path, **changes: str) -> Settings:
    return Settings.from_environment(ENVIRONMENT | {"FP16": "false", "CONFIG": str(config)} | changes)


def changed(tmp_path: Path, **changes: object) -> Path:
    path = tmp_path / "ds.json"
    path.write_text(json.dumps(json.loads((CONFIGS / "zero2_offload.json").read_text()) | changes, indent=2))
    return path


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.json")), ids=lambda path: path.stem)
def test_shipped_configuration_is_valid_and_leaves_settings_to_env_vars(path: Path) -> None:
    config = deepspeed_config(settings(path))
    stage = config["zero_optimization"]["stage"]
    assert path.stem.startswith(f"zero{stage}")
    assert ("offload" in path.stem) == ("offload_optimizer" in config["zero_optimization"])
    text = path.read_text()
    for key in (
        "train_batch_size",
        "gradient_accumulation_steps",
        "gradient_clipping",
        "lr",
        "weight_decay",
        "enabled",
    ):
        assert f'"{key}": "auto"' in text, key


def test_a_step_to_the_tuned_configuration_changes_its_own_keys_only() -> None:
    """Otherwise Table 4c blames a key for what another one did."""
    plain, tuned = (CONFIGS / f"zero3_offload{suffix}.json" for suffix in ("", "_tuned"))
    steps = {"leaf": {"leaf_module"}, "params_on_gpu": {"offload_param"}, "gpu_leaf": {"leaf_module", "offload_param"}}
    steps["gpu_leaf_small"] = steps["gpu_leaf"] | {"sub_group_size"}
    steps[tuned.stem] = steps["gpu_leaf_small"] | {"offload_optimizer"}  # its ratio
    before = deepspeed_config(settings(plain))
    paths = [*(path for path in CONFIGS.glob("tuning/*.json") if path.stem not in OTHERS), tuned]
    assert {path.stem for path in paths} == set(steps)
    for path in paths:
        after = deepspeed_config(settings(path))
        assert {key for key in before if before[key] != after.get(key)} == {"zero_optimization"}
        old, new = before["zero_optimization"], after["zero_optimization"]
        assert {key for key in old | new if old.get(key) != new.get(key)} == steps[path.stem], path
        assert all(
            new[key] == json.loads(tuned.read_text())["zero_optimization"][key] for key in new.keys() - old.keys()
        )


@pytest.mark.parametrize(("name", "plain", "keys"), OTHERS.values(), ids=OTHERS)
def test_variant_changes_its_own_keys_only(name: str, plain: str, keys: set[str]) -> None:
    before, after = (deepspeed_config(settings(CONFIGS / f"{one}.json")) for one in (plain, f"tuning/{name}"))
    old, new = before.pop("zero_optimization") | before, after.pop("zero_optimization") | after
    assert {key for key in old | new if old.get(key) != new.get(key)} == keys


def test_text_that_is_not_json_names_line_and_column(tmp_path: Path) -> None:
    path = tmp_path / "ds.json"
    path.write_text('{\n  "zero_optimization": {"stage": 2,}\n}\n')
    with pytest.raises(WorkshopError, match=r"ds\.json:2:\d+: not JSON"):
        deepspeed_config(settings(path))


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(WorkshopError, match=r"nowhere\.json: No such file"):
        deepspeed_config(settings(tmp_path / "nowhere.json"))


def test_key_that_deepspeed_would_ignore_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(WorkshopError, match="nothing reads 'zero_optimisation'"):
        deepspeed_config(settings(changed(tmp_path, zero_optimisation={"stage": 3})))


@pytest.mark.parametrize(
    ("zero", "message"),
    [
        ({"stage": 4}, r"zero_optimization\.stage is 4: Input should be 0, 1, 2"),
        ({"stage": 2, "offload_optimiser": {"device": "cpu"}}, r"zero_optimization\.offload_optimiser"),
        (
            {"stage": 2, "offload_optimizer": {"device": "gpu"}},
            r"zero_optimization\.offload_optimizer\.device is 'gpu'",
        ),
    ],
)
def test_unknown_stage_or_key_of_zero_is_named(tmp_path: Path, zero: dict[str, object], message: str) -> None:
    with pytest.raises(WorkshopError, match=message):
        deepspeed_config(settings(changed(tmp_path, zero_optimization=zero)))


def test_B5_batch_in_the_json_that_contradicts_the_settings_is_an_error(tmp_path: Path) -> None:
    path = changed(tmp_path, train_micro_batch_size_per_gpu=4)
    with pytest.raises(WorkshopError, match="train_micro_batch_size_per_gpu is 4, but BATCH_SIZE is 32"):
        deepspeed_config(settings(path, BATCH_SIZE="32"))


def test_B5_precision_in_the_json_that_contradicts_the_settings_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(WorkshopError, match=r"fp16\.enabled is True, but FP16 is False"):
        deepspeed_config(settings(changed(tmp_path, fp16={"enabled": True})))


def test_K7_auto_batch_is_micro_batch_times_accumulation_times_gpus_not_a_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert deepspeed_config(settings(changed(tmp_path, train_batch_size=32)))["train_batch_size"] == 32
    with pytest.raises(WorkshopError, match="train_batch_size is 16, but BATCH_SIZE x GRAD_ACC x GPUs is 32"):
        deepspeed_config(settings(changed(tmp_path, train_batch_size=16)))


def test_optimizer_setting_that_the_json_overrides_is_an_error() -> None:
    with pytest.raises(WorkshopError, match=r"OPTIMIZER=adamw_torch: .* has an optimizer of its own"):
        deepspeed_config(settings(CONFIGS / "zero2.json", OPTIMIZER="adamw_torch"))


def test_timers_without_deepspeed_are_an_error() -> None:
    assert deepspeed_config(settings(CONFIGS / "zero2.json", TIMERS="true"))["wall_clock_breakdown"]
    with pytest.raises(WorkshopError, match=r"TIMERS=true: the timers are DeepSpeed's"):
        Settings.from_environment(ENVIRONMENT | {"TIMERS": "true"})
