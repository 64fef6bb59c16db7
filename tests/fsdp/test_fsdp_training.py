"""Every strategy through its launcher on two (hybrid: four) processes: really sharded, and the training is the same."""

import csv
import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from tests.launching import PATH, REPO, die_after
from tests.test_disk_need import PER_CHECKPOINT

CONFIGS = REPO / "fsdp/fsdp_configs"
STEPS = 20
# 8 examples per step with two processes and with four; an epoch has 10 steps.
SETTINGS = {
    **{"MODEL_NAME": "tiny", "MODEL_INIT": "random", "TOKENIZER_NAME": "sample", "DATASET": "sample"},
    **{
        "TRAIN_SIZE": "80",
        "EVAL_SIZE": "16",
        "MAX_LENGTH": "128",
        "NUM_EPOCHS": "2",
        "BATCH_SIZE": "2",
        "GRAD_ACC": "2",
    },
    **{"LEARNING_RATE": "2e-3", "FP16": "false", "BF16": "false", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
    **{"REPORT_TO": "none", "SAVE": "no", "GENERATE_SIZE": "0"},
}
OF_STRATEGY = {
    "ddp": {"SAVE": "epoch"},
    "full_shard": {"SAVE": "epoch", "GENERATE_SIZE": "5", "REPORT_TO": "wandb"},
    "full_shard_sharded_state": {"SAVE": "epoch"},
    "full_shard_checkpointing": {"SAVE": "end"},
    "hybrid_shard_offload": {"GPUS_PER_NODE": "4", "GRAD_ACC": "1"},
}
# hybrid_shard runs on two nodes in tests/slurm/test_fsdp.py. What run.json must say was seen:
# method, parameters sharded after the forward pass, CPU offload.
STRATEGIES = {
    "full_shard": ("fsdp2", True, False),
    "full_shard_offload": ("fsdp2", True, True),
    "full_shard_checkpointing": ("fsdp2", True, False),
    "full_shard_sharded_state": ("fsdp2", True, False),
    "shard_grad_op": ("fsdp2", False, False),
    "shard_grad_op_offload": ("fsdp2", False, True),
    "hybrid_shard_offload": ("fsdp2", True, True),
    "fsdp1_full_shard": ("fsdp1", True, False),
}

BLOOM = "transformers.models.bloom.modeling_bloom.BloomForCausalLM"


@pytest.fixture(scope="module")
def launched(tmp_path_factory):
    """launched("full_shard", RESUME_FROM=...) -> run folder; every combination runs once."""
    logs = tmp_path_factory.mktemp("logs")

    @cache
    def run(config: str, **settings: str) -> Path:
        experiment = "-".join([config, *settings])
        changed = {"PATH": PATH, "LOG_DIR": str(logs), "EXPERIMENT_NAME": experiment, "GPUS_PER_NODE": "2"}
        environment = os.environ | SETTINGS | changed | OF_STRATEGY.get(config, {}) | settings
        command = ["bash", "fsdp/multi_gpu.slurm", f"fsdp/fsdp_configs/{config}.json"]
        job = subprocess.run(command, cwd=REPO, env=environment, capture_output=True, text=True, timeout=240)
        assert job.returncode == 0, job.stdout[-4000:] + job.stderr[-2000:]
        if "RESUME_RUN" in settings:
            return Path(settings["RESUME_RUN"])
        (folder,) = (logs / experiment).iterdir()
        return folder

    return run


def record(run: Path) -> dict:
    return json.loads((run / "run.json").read_text())


def losses(run: Path) -> dict[int, float]:
    with (run / "steps.csv").open() as file:
        return {int(line["step"]): float(line["loss"]) for line in csv.DictReader(file)}


def assert_same_losses(found: dict[int, float], expected: dict[int, float]) -> None:
    assert {step: expected[step] for step in found} == pytest.approx(found, abs=1e-5)


@pytest.mark.parametrize("config", STRATEGIES)
def test_strategy_trains_as_the_baseline_and_really_shards(launched, config: str) -> None:
    run, baseline = launched(config), launched("ddp")
    assert list(losses(run)) == list(range(1, STEPS + 1))
    assert_same_losses(losses(run), losses(baseline))
    assert losses(run)[STEPS] < losses(run)[1] - 0.1, "hardly a training: the comparison would prove nothing"
    sharding = record(run)["sharding"]
    method, parameters, offload = STRATEGIES[config]
    assert sharding["method"] == method
    assert (sharding["gradients"], sharding["optimizer"]) == (True, True)
    assert (sharding["parameters"], sharding["cpu_offload"]) == (parameters, offload)
    assert (sharding["model_class"], sharding["own_modules"]) == (BLOOM, [])
    assert "transformers.trainer.Trainer" in record(run)["trainer_classes"]


@pytest.mark.parametrize(("config", "kind"), [("full_shard", "fsdp"), ("full_shard_sharded_state", "fsdp, sharded")])
def test_checkpoint_is_as_large_as_the_readme_s_table_of_disk_need_takes_it(launched, config: str, kind: str) -> None:
    files = launched(config).glob("bloom-qa-finetuned/checkpoint-10/**/*")
    size = sum(path.stat().st_size for path in files if path.suffix in (".safetensors", ".bin", ".distcp"))
    per_parameter, per_head = PER_CHECKPOINT[kind]
    model = record(launched(config))["model"]
    expected = per_parameter * model["parameters"] + per_head * model["embedding_parameters"]
    assert size == pytest.approx(expected, rel=0.2)


def test_ddp_is_not_called_sharded(launched) -> None:
    sharding = record(launched("ddp"))["sharding"]
    assert sharding["method"] == "ddp"
    assert not any(sharding[key] for key in ("parameters", "gradients", "optimizer", "cpu_offload"))


def test_K3_without_fp16_and_bf16_the_record_says_fp32(launched) -> None:
    assert record(launched("full_shard"))["precision"] == "fp32"


@pytest.mark.parametrize(
    ("config", "gpus"),
    [("ddp", 1), ("full_shard", 1), ("full_shard_sharded_state", 2), ("full_shard_sharded_state", 1)],
)
def test_run_goes_on_in_its_folder_also_on_another_number_of_processes(
    launched, tmp_path: Path, config: str, gpus: int
) -> None:
    whole = launched(config)
    died = die_after(whole, "checkpoint-10", tmp_path / whole.name)
    sharded = (died / "bloom-qa-finetuned/checkpoint-10/pytorch_model_fsdp_0").is_dir()
    assert sharded == (config == "full_shard_sharded_state")
    # The same global batch: what an epoch has seen so far is counted in batches.
    launched(config, RESUME_RUN=str(died), GPUS_PER_NODE=str(gpus), GRAD_ACC=str(4 // gpus), GENERATE_SIZE="0")
    assert list(losses(died)) == list(range(1, STEPS + 1))
    assert_same_losses(losses(died), losses(whole))
    ids = {folder.name.split("-", 3)[-1] for folder in (died / "wandb").glob("offline-run-*")}
    assert len(ids) <= 1, "two runs in Weights & Biases"


@pytest.mark.parametrize("config", ["full_shard", "full_shard_sharded_state", "full_shard_checkpointing"])
def test_K10_final_model_is_whole_and_loads(launched, config: str) -> None:
    saved = launched(config) / "bloom-qa-finetuned"
    model, report = AutoModelForCausalLM.from_pretrained(saved, output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"]
    expected = load_file(launched("ddp") / "bloom-qa-finetuned" / "model.safetensors")
    found = model.state_dict()
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, atol=1e-5, rtol=0)


def test_weights_and_biases_lies_in_the_run_folder_with_the_figures(launched) -> None:
    run = launched("full_shard")
    summary = json.loads((run / "summary.json").read_text())
    assert summary["generated_examples"] == 5
    (log,) = (run / "wandb").glob("offline-run-*/run-*.wandb")  # one rank writes
    content = log.read_bytes()
    assert all(name.encode() in content for name in ("train/tokens_per_second", "avg_gpu_util_%", "exact_match"))
    assert "Weights & Biases: offline; " in (run / "train.out").read_text()  # with a key of conftest.py, but no server


def on_two_ranks(script: str, *arguments: str, **settings: str) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    environment = os.environ | {"PYTHONPATH": str(REPO)} | SETTINGS | settings
    script = str(Path(__file__).with_name(script))
    job = subprocess.run(
        [*command, script, *arguments], cwd=REPO, env=environment, capture_output=True, text=True, timeout=240
    )
    assert job.returncode == 0, job.stdout[-2000:] + job.stderr[-4000:]


def looked_at(folder: Path, config: str, **settings: str) -> list[dict]:
    places = {"RUN_DIR": str(folder), "EXPERIMENT_NAME": "test", "OUTPUT_DIR": "out", "WEIGHT_DECAY": "0"}
    places |= {"CONFIG": str(CONFIGS / f"{config}.json"), "MAX_STEPS": "1", "GRAD_ACC": "3"}
    on_two_ranks("train_and_look.py", str(folder), **places, **settings)
    return [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(2)]


def test_K2_each_block_is_a_unit_and_recomputes_and_two_ranks_answer_as_one(tmp_path: Path) -> None:
    ranks = looked_at(tmp_path, "full_shard_checkpointing")
    for seen in ranks:
        assert seen["units"] == seen["blocks"] == 2
        assert seen["sharded"]
        assert not any(seen["offloaded"])
        assert seen["forward_calls"] == 2 * 3, "each micro-batch runs a block forward, and again in the backward pass"
        assert seen["answers"] == ranks[0]["answers_of_one_process"]
    assert sum(seen["local_bytes"] for seen in ranks) == ranks[0]["full_bytes"]
    assert max(seen["local_bytes"] for seen in ranks) < 0.51 * ranks[0]["full_bytes"]
    assert len(set(ranks[0]["answers"].values())) > 4  # a model that always says the same would prove nothing


def test_offloaded_parameters_live_on_the_cpu_and_bf16_is_recorded(tmp_path: Path) -> None:
    for seen in looked_at(tmp_path, "full_shard_offload", BF16="true"):
        assert seen["offloaded"] and all(seen["offloaded"])
        assert seen["devices"] == ["cpu"]
        assert seen["forward_calls"] == 3, "without checkpointing nothing is computed twice"
    assert record(tmp_path)["precision"] == "bf16"


def test_fp16_overflow_on_one_rank_skips_the_step_on_all() -> None:
    on_two_ranks("overflow_on_ranks.py")
