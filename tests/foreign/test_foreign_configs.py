"""Configurations that people copy are trained as they are written, or refused before there is a run folder.

Files: shortened from public issues, templates of accelerate, axolotl and LLaMA-Factory, and Transformers' own example.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deepspeed.runtime.precision_config as of_precision
import deepspeed.runtime.zero.config as of_zero
import deepspeed.runtime.zero.offload_config as of_offload
import pytest
from deepspeed.runtime import lr_schedules
from deepspeed.runtime.config import _REMOVED_TOP_LEVEL_CONFIG_KEYS, _REMOVED_ZERO_CONFIG_KEYS
from transformers.integrations.deepspeed import HfTrainerDeepSpeedConfig

from tests.launching import folder_of
from tests.trainings_on_ranks import Ranks, training
from tests.workshop.environment import ENVIRONMENT
from tools.plan.submitted_lines import workload_of
from tools.submit.submissions import read_argument
from tools.submit.submitted import read_as_job
from workshop.record.errors import InputError
from workshop.settings import deepspeed_config
from workshop.settings.configuration import check_configuration, read_configuration
from workshop.settings.settings import Settings

FILES = {path.name: path for path in sorted((Path(__file__).parent / "configs").iterdir())}
EXERCISES = {"d": "deepspeed-multi-gpu", "f": "fsdp", "w": "deepspeed-multi-gpu"}
LAUNCHERS = {"deepspeed-multi-gpu": "deepspeed.slurm", "fsdp": "multi_gpu.slurm"}
TYPES = "AdamW or Adam or adamw or adam"
NOT_JSON = "not JSON .*expected no comments, no commas"
# What of the file's ZeRO section, or of FSDP's file, is trained.
TRAINED: dict[str, dict[str, Any]] = {
    "d01-ds4715-zero3-offload-wandb-sched.json": {
        **{"stage": 3, "sub_group_size": 10**9, "offload_param": {"device": "cpu", "pin_memory": True}},
        **{"reduce_bucket_size": "auto", "stage3_gather_16bit_weights_on_model_save": True},
    },
    "d02-peft453-offload-none.json": {"stage": 3, "offload_optimizer": None, "offload_param": None},
    "d12-old-gather-fp16.json": {
        "stage3_gather_16bit_weights_on_model_save": True,
        "stage3_gather_fp16_weights_on_model_save": None,
    },
    "d27-csv-monitor.json": {"stage": 2},
    "d40-hf-docs-zero3.json": {"stage": 3, "stage3_max_live_parameters": 10**9, "reduce_bucket_size": "auto"},
    "d43-ckpt-all-false.json": {"stage": 2},
    "d44-old-cpu-offload.json": {"offload_optimizer": {"device": "cpu"}, "cpu_offload": None},
    "d45-checkpointing-on.json": {"stage": 2},
    "d47-axolotl-zero3.json": {"stage": 3, "stage3_max_live_parameters": 0},
    "d48-llama-factory-zero2.json": {"stage": 2, "allgather_bucket_size": 500_000_000},
    "d52-warmup-cosine.json": {"stage": 1},
    "d54-bare.json": {"stage": 1},
    "f09-empty.json": {"version": 2, "transformer_layer_cls_to_wrap": None},  # the Trainer's default: per block
    "f14-no-wrap-policy.json": {"version": 2, "reshard_after_forward": True},
    "f23-sharded-state.json": {"version": 2, "reshard_after_forward": False},
}
REFUSED = {
    "d03-ds3566-fixed-batch.json": 'train_micro_batch_size_per_gpu is 1, but BATCH_SIZE is 4; expected "auto"',
    "d04-hana-warmup-maxlr.json": "scheduler.params.warmup_max_lr is 0.0001, but LEARNING_RATE is 5e-05",
    "d05-offload-param-stage-2.json": "stage 2 does not read zero_optimization.offload_param; expected stage 3",
    "d06-mics.json": "'zero_optimization.mics_shard_size'; expected it left out: DeepSpeed 0.19 has removed it, MiCS",
    "d07-nvme.json": "zero_optimization.offload_optimizer.device is 'nvme'; expected none or cpu",
    "d08-both-precisions.json": "fp16.enabled is True, but FP16 is False",
    "d13-fp16-typo.json": "nothing reads 'fp16.initial_scale_pwer'; expected keys out of auto_cast",
    "d15-zero-true.json": "zero_optimization is True; expected an object",
    "d17-bfloat16-alias.json": "nothing reads 'bfloat16'; expected bf16, its new name",
    "d18-stage-string.json": "zero_optimization.stage is '3'; expected 0 or 1 or 2 or 3",
    "d19-no-zero-section.json": "found no zero_optimization.stage, expected 0, 1, 2 or 3",
    "d20-elasticity.json": "nothing reads 'elasticity'; expected it left out: DeepSpeed 0.19 has removed it",
    "d21-optimizer-adam-betas.json": r"optimizer.params.betas is \[0.8, 0.999\], but the workshop's pair is \[0.9",
    "d22-optimizer-unknown.json": f"optimizer.type is 'Adafactor'; expected {TYPES}",
    "d24-sched-unknown.json": "scheduler.type is 'CosineAnnealing'; expected WarmupLR or WarmupDecayLR",
    "d25-sched-oneCycle.json": "cycle_max_lr is 0.001, but LEARNING_RATE is 5e-05; expected the same in both",
    "d30-tensor-parallel.json": "nothing reads 'tensor_parallel'; expected it left out, and further/dimensions/tp.py",
    "d31-hjson-comment.json": f":2:3: {NOT_JSON}",
    "d32-accelerate.yaml": f":1:1: {NOT_JSON}",
    "d46-gather-false.json": "stage3_gather_16bit_weights_on_model_save is False: .*expected true, or SAVE=no",
    "d49-zeropp.json": "zero_optimization.zero_quantized_weights is True; expected false",
    "d50-auto-bucket.json": """allgather_bucket_size is 'auto'; expected a whole number .*"auto" is filled in""",
    "d61-torch-autocast.json": "torch_autocast.enabled is True; expected false, nothing else is trained here",
    "d62-key-twice.json": "'stage' stands twice in one object",
    "d63-nan.json": "gradient_clipping is nan; expected a number of at least 0",
    "f01-trainer-old.json": "'fsdp_transformer_layer_cls_to_wrap' in FSDP2; expected transformer_layer_cls_to_wrap: a",
    "f02-min-num-params.json": "'fsdp_min_num_params' in FSDP2; expected auto_wrap_policy: TRANSFORMER_BASED_WRAP",
    "f05-wrong-class.json": "cls_to_wrap is LlamaDecoderLayer; expected BloomBlock, blocks of a bloom",
    "f07-ckpt-string.json": "activation_checkpointing is 'true'; expected true or false",
    "f10-trainer-dump.json": "fsdp is 'full_shard auto_wrap'; expected true or false",
    "f16-no-copies.json": "dp_replicate_size is 0; expected a whole number of at least 1",
    "f06-tied-unit.json": "cls_to_wrap is Embedding; expected BloomBlock, blocks of a bloom",
    "f17-classes-empty.json": r"transformer_layer_cls_to_wrap is \[\]; expected a list of texts",
    "f24-v1-prefetch.json": "nothing reads 'forward_prefetch' in FSDP2; expected forward_prefetch, and \"version\": 1",
    "w2-wrong-types.json": "nothing reads 'dp_replicate_size'",
}
NOT_PLANNED = "f15-v1-no-shard.json"
RULES = {"w3-wrong-types.json": "nothing reads 'gpus.dp_replicate_size'", "w4-wrong-types.json": "gpus is '3'"}


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Reads a file as its job's preflight does, and as the planner does; both must say the same."""
    own = ENVIRONMENT | {"FP16": "false", "NPROC_PER_NODE": "2"}

    def both(name: str, **changes: str) -> tuple[str | dict[str, Any], Any]:
        exercise = EXERCISES[name[0]]
        monkeypatch.chdir(folder_of(exercise))
        words = [f"{key}={value}" for key, value in (own | changes).items() if key in own.keys() - {"RUN_DIR"}]
        words = [word for word in words if not word.startswith(("EXPERIMENT_NAME", "OUTPUT_DIR", "NPROC"))]
        words += [f"SAVE={changes.get('SAVE', 'steps')}", "--gpus-per-node=2", f"{exercise}/{LAUNCHERS[exercise]}"]
        line = read_argument(" ".join([*words, str(FILES[name])]), {})
        try:
            settings = Settings.from_environment(own | {"CONFIG": str(FILES[name])} | changes, Path("none"))
            check_configuration(settings)
        except InputError as error:
            with pytest.raises(InputError) as planned:
                workload_of(line)
            assert str(error) in str(planned.value)
            return str(error), None
        return read_as_job(line)[1].values, workload_of(line)

    return both


def test_every_file_has_a_verdict() -> None:
    assert sorted(FILES) == sorted([*TRAINED, *REFUSED, *RULES, NOT_PLANNED])


@pytest.mark.parametrize("name", REFUSED)
def test_file_is_refused_with_key_and_reason_by_launcher_and_planner(read: Callable[..., Any], name: str) -> None:
    said, _ = read(name)
    assert isinstance(said, str), f"trained: {said}"
    assert re.search(f"{FILES[name]}.*{REFUSED[name]}", said), said


@pytest.mark.parametrize("name", TRAINED)
def test_file_is_read_as_it_is_written_by_launcher_and_planner(read: Callable[..., Any], name: str) -> None:
    values, workload = read(name)
    assert isinstance(values, dict), values
    section = values.get("zero_optimization", values)
    assert {key: section.get(key) for key in TRAINED[name]} == TRAINED[name]
    assert not {"activation_checkpointing", "aio", "steps_per_print"} & (values.keys() - TRAINED[name].keys())
    assert workload.shape["gradient_checkpointing"] is False
    assert "auto" not in workload.strategy.zero.values()


def test_file_without_a_formula_is_trained_and_not_planned(read: Callable[..., Any]) -> None:
    with pytest.raises(InputError, match=f"{NOT_PLANNED}': reshard_after_forward no_shard: not planned"):
        read(NOT_PLANNED)


def test_planner_fills_in_what_transformers_does(read: Callable[..., Any]) -> None:
    values, workload = read("d40-hf-docs-zero3.json", MODEL_NAME="bigscience/bloom-560m")
    filled = HfTrainerDeepSpeedConfig(values)
    names = [name for name, value in values["zero_optimization"].items() if value == "auto"]
    assert len(names) == 3
    arguments = type("Arguments", (), {"get_warmup_steps": lambda self, steps: 0})()
    model = type("Model", (), {"config": type("Config", (), {"hidden_size": 1024})()})()
    filled.mismatches = []
    filled.trainer_config_finalize(arguments, model, 10)
    theirs, ours = filled.config["zero_optimization"], workload.strategy.zero
    assert {name: ours[name] for name in names} == {name: theirs[name] for name in names}


def test_what_does_nothing_is_said_at_the_start(read: Callable[..., Any]) -> None:
    on, off = (
        read_configuration(FILES[name], {}, 2) for name in ("d45-checkpointing-on.json", "d43-ckpt-all-false.json")
    )
    assert "activation_checkpointing, which does nothing here; expected GRADIENT_CHECKPOINTING" in str(on.notes)
    assert "activation_checkpointing" not in str(off.notes)
    values, _ = read("d46-gather-false.json", SAVE="no")
    assert isinstance(values, dict), "without saving nothing has to be gathered"


def test_file_that_contradicts_only_the_settings_is_trained_with_its_own(read: Callable[..., Any]) -> None:
    own = {"LEARNING_RATE": "1e-3", "LR_WARMUP_STEPS": "0"}
    assert isinstance(read("d25-sched-oneCycle.json", **own)[0], dict)
    assert isinstance(read("d03-ds3566-fixed-batch.json", BATCH_SIZE="1", GRAD_ACC="1")[0], str)  # 16 GPUs, not 2


@pytest.mark.parametrize("name", RULES)
def test_rule_of_weak_scaling_of_wrong_types_is_refused_by_the_planner(name: str) -> None:
    line = f"--gpus-per-node=2 custom_model/weak_scaling.slurm {FILES[name]}"
    with pytest.raises(InputError, match=RULES[name]):
        workload_of(read_argument(line, {}))


@pytest.mark.usefixtures("optimizers_compiled")
def test_copied_files_really_train(ranks: Ranks, tmp_path: Path) -> None:
    names = ("d01", "d40", "d44", "d47", "d48", "d52", "d54", "f09", "f23")
    files = [next(path for path in FILES.values() if path.name.startswith(name)) for name in names]
    own = {"TRAIN_SIZE": "16", "MAX_STEPS": "2", "GRAD_ACC": "1", "SAVE": "end"}
    ranks.train([training(tmp_path / path.stem, EXERCISES[path.name[0]], path, **own) for path in files])
    for path in files:
        assert (tmp_path / path.stem / "steps.csv").read_text().count("\n") == 3, path.name
        assert (tmp_path / path.stem / "bloom-qa-finetuned/model.safetensors").stat().st_size > 100_000, path.name
    assert list((tmp_path / files[0].stem / "wandb").iterdir()), "DeepSpeed's monitor writes into the run folder"
    assert not (folder_of(EXERCISES["d"]) / "wandb").exists(), "and nowhere else"


def test_table_of_kinds_has_deepspeeds_keys() -> None:
    """A key that a newer DeepSpeed has, and one that it no longer has, shows here."""
    classes = [
        (of_zero.DeepSpeedZeroConfig, deepspeed_config.ZERO),
        (of_offload.DeepSpeedZeroOffloadOptimizerConfig, deepspeed_config.ZERO["offload_optimizer"]),
        (of_offload.DeepSpeedZeroOffloadParamConfig, deepspeed_config.ZERO["offload_param"]),
        (of_precision.DeepSpeedFP16Config, deepspeed_config.KINDS["fp16"]),
        (of_precision.DeepSpeedBF16Config, deepspeed_config.KINDS["bf16"]),
    ]
    old = {"cpu_offload", "cpu_offload_param", "cpu_offload_use_pin_memory", "steps_per_epoch"}
    old |= {"stage3_gather_fp16_weights_on_model_save", "zenflow"}
    for kind, table in classes:
        theirs = {field.alias or name for name, field in kind.model_fields.items()}
        assert theirs - old == table.keys(), kind
    assert set(lr_schedules.VALID_LR_SCHEDULES) == deepspeed_config.SCHEDULERS.keys()
    removed = _REMOVED_TOP_LEVEL_CONFIG_KEYS.keys() | _REMOVED_ZERO_CONFIG_KEYS.keys()
    assert removed <= deepspeed_config.OTHER.keys()
