"""All four launchers on CPU with a tiny shape: one, two and four processes, and one host as two nodes."""

import io
import json
import subprocess
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM

from custom_model.model import SimpleGPTModel
from run_folder import nccl_log
from tests.custom_model.launching import REPO, launch
from tests.launching import losses, record, tiny_profile
from tools.__main__ import main
from tools.logs import steps
from workshop.training.callbacks import WARMUP_STEPS


def filled(logs: Path, table: str) -> str:
    with redirect_stdout(io.StringIO()) as printed:
        assert main(["fill", "custom_model", "--tiny", "--only", table, "--logs", str(logs)]) == 0
    return printed.getvalue()


@pytest.fixture(scope="module")
def single_node(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder of single_node.slurm with evaluation, saved model and answers."""
    logs = tmp_path_factory.mktemp("logs")
    job, run = launch(logs, "single_node.slurm", MAX_STEPS="24", SAVE="end", GENERATE_SIZE="4")
    assert job.returncode == 0, job.stdout + job.stderr
    return run


def test_single_node_trains_saves_and_answers(single_node: Path) -> None:
    assert sum(losses(single_node)[-4:]) < sum(losses(single_node)[:4]) - 1
    assert record(single_node)["model"]["name"] == "simple-gpt"
    assert record(single_node)["settings"]["use_fsdp"] is False
    assert json.loads((single_node / "summary.json").read_text())["generated_examples"] == 4
    model = AutoModelForCausalLM.from_pretrained(single_node / "bloom-qa-finetuned")
    assert isinstance(model, SimpleGPTModel)
    assert model.num_parameters() == record(single_node)["model"]["parameters"]
    assert "| Steps per Epoch | 8 |" in filled(single_node.parents[1], "13")


def test_K8_flops_are_recorded_and_printed(single_node: Path) -> None:
    # 3 layers of 8h² + 4Sh + 4hf and a head of 2hV, times three for the backward pass; h 64, f 256, S 256, V 1024.
    per_token = 3 * (3 * (8 * 64**2 + 4 * 256 * 64 + 4 * 64 * 256) + 2 * 64 * 1024)
    assert record(single_node)["model"]["flops_per_token"] == per_token
    assert record(single_node)["flops_per_gpu_per_step"] == per_token * 256 * 4 * 2  # batch 4, accumulation 2
    assert f"{per_token * 256 * 8 / 1e12:.4g} TFLOP per GPU and step" in (single_node / "train.out").read_text()


def test_default_and_callback_speed_come_from_the_same_steps(single_node: Path) -> None:
    """Table 14's two columns: the Trainer divides by everything between start and end, the callback by timed steps."""
    log, summary = steps.read(single_node / "steps.csv"), json.loads((single_node / "summary.json").read_text())
    samples = log.tokens.sum() / 256
    timed = slice(WARMUP_STEPS, None)
    callback = log.tokens[timed].sum() / 256 / log.step_time_s[timed].sum()
    assert summary["train/samples_per_second"] == pytest.approx(callback)

    runtime_s = summary["train_runtime_s"]
    assert summary["train_samples_per_second"] == pytest.approx(samples / runtime_s, rel=1e-3)
    # What lies between them: the warm-up's extra time inside the steps, and what is no step at all.
    outside_s = runtime_s - log.step_time_s.sum()
    evaluation_s = 8 / summary["eval_samples_per_second"] * 3  # three epochs
    assert outside_s > evaluation_s * 0.9
    mean_s = log.step_time_s[timed].mean()
    warmup_extra_s = log.step_time_s[:WARMUP_STEPS].sum() - WARMUP_STEPS * mean_s
    steady_s = len(log.step) * mean_s
    assert steady_s + warmup_extra_s + outside_s == pytest.approx(runtime_s)
    assert samples / steady_s == pytest.approx(callback)


def test_multi_gpu_with_two_processes(tmp_path: Path) -> None:
    job, run = launch(tmp_path, "multi_gpu.slurm", GPUS_PER_NODE="2")
    assert job.returncode == 0, job.stdout + job.stderr
    assert (record(run)["world_size"], record(run)["nodes"]) == (2, 1)
    assert losses(run)[-1] < losses(run)[0] - 0.3
    (row,) = [line for line in filled(tmp_path, "14").splitlines() if line.startswith("| Single node, 2 GPUs")]
    assert row.split("|")[2].strip() == "2"
    assert "not measured" not in row


def test_weak_scaling_with_four_processes(tmp_path: Path) -> None:
    job, run = launch(
        tmp_path,
        "weak_scaling.slurm",
        "custom_model/weak_scaling_configs/constant.json",
        GPUS_PER_NODE="4",
        MAX_STEPS="3",
    )
    assert job.returncode == 0, job.stdout + job.stderr
    settings = record(run)["settings"]
    assert [settings[name] for name in ("num_layers", "batch_size", "grad_acc")] == [8, 4, 1]
    assert (record(run)["config"], record(run)["world_size"]) == ("constant", 4)
    (row,) = [line for line in filled(tmp_path, "16").splitlines() if line.startswith("| Constant work | 4 GPUs")]
    cells = [cell.strip() for cell in row.split("|")]
    assert cells[3:5] == ["8", "4"]
    assert cells[-2] == "not measured"  # the efficiency's baseline, two GPUs, has not run


def test_one_host_plays_two_nodes(tmp_path: Path) -> None:
    job, run = launch(tmp_path, "multi_node.slurm", EMULATED_NODES="2", GPUS_PER_NODE="1", MAX_STEPS="2")
    assert job.returncode == 0, job.stdout + job.stderr
    assert "Measured AllReduce BW: " in job.stdout
    assert [record(run)[name] for name in ("world_size", "nodes", "emulated_nodes")] == [2, 2, True]
    log = nccl_log.read(run / "nccl.log")
    assert log.world_size == 2
    assert set(log.collectives) == {"all_reduce", "all_gather", "reduce_scatter"}
    assert all(bandwidth > 0 for found in log.collectives.values() for bandwidth in found.values())


def test_single_node_refuses_two_gpus(tmp_path: Path) -> None:
    environment = tiny_profile() | {"LOG_DIR": str(tmp_path), "GPUS_PER_NODE": "2"}
    command = ["bash", "custom_model/single_node.slurm"]
    job = subprocess.run(command, cwd=REPO, env=environment, capture_output=True, text=True, timeout=300)
    assert (job.returncode, list(tmp_path.iterdir())) == (1, [])
    assert "custom_model trains on one GPU, but this job has 2; expected --nodes=1 --gpus-per-node=1" in job.stderr
