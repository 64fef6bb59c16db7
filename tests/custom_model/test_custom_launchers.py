"""All four launchers on CPU with a tiny shape: one and two processes, and one host as two nodes."""

import json
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM

from custom_model.model import SimpleGPTModel
from tests.launching import launch, losses, record
from tools.__main__ import main
from workshop.record import nccl_log

SHORT = {"MAX_STEPS": "8", "TRAIN_SIZE": "64", "EVAL_SIZE": "8", "SAVE": "no", "GENERATE_SIZE": "0"}


@pytest.fixture(scope="module")
def single_node(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder of single_node.slurm with evaluation, saved model and answers."""
    own = SHORT | {"MAX_STEPS": "24", "SAVE": "end", "GENERATE_SIZE": "4", "SEQ_LENGTH": "128", "MAX_LENGTH": "128"}
    return launch(tmp_path_factory.mktemp("logs"), "custom_model/single_node.slurm", **own)


def test_single_node_trains_saves_and_answers(single_node: Path, capsys: pytest.CaptureFixture) -> None:
    assert sum(losses(single_node)[-4:]) < sum(losses(single_node)[:4]) - 1
    assert record(single_node)["model"]["name"] == "simple-gpt"
    assert record(single_node)["settings"]["use_fsdp"] is False
    assert json.loads((single_node / "summary.json").read_text())["generated_examples"] == 4
    model = AutoModelForCausalLM.from_pretrained(single_node / "bloom-qa-finetuned")
    assert isinstance(model, SimpleGPTModel)
    assert model.num_parameters() == record(single_node)["model"]["parameters"]
    assert main(["fill", "custom_model", "--tiny", "--only", "13", "--logs", str(single_node.parents[1])]) == 0
    assert "| Steps per Epoch | 8 |" in capsys.readouterr().out


def test_K8_flops_are_recorded_and_printed(single_node: Path) -> None:
    # 4 layers of 8h² + 4Sh + 4hf and a head of 2hV, times three for the backward pass; h 64, f 256, S 128, V 1024.
    per_token = 3 * (4 * (8 * 64**2 + 4 * 128 * 64 + 4 * 64 * 256) + 2 * 64 * 1024)
    assert record(single_node)["model"]["flops_per_token"] == per_token
    assert record(single_node)["flops_per_gpu_per_step"] == per_token * 128 * 4 * 2  # batch 4, accumulation 2
    assert f"{per_token * 128 * 8 / 1e12:.4g} TFLOP per GPU and step" in (single_node / "train.out").read_text()


@pytest.mark.slow
def test_one_host_plays_two_nodes(tmp_path: Path) -> None:
    own = SHORT | {"EMULATED_NODES": "2", "GPUS_PER_NODE": "1", "MAX_STEPS": "2"}
    run = launch(tmp_path, "custom_model/multi_node.slurm", **own)
    assert [record(run)[name] for name in ("world_size", "nodes", "emulated_nodes")] == [2, 2, True]
    assert len(losses(run)) == 2, "each node prints the Trainer's lines"
    log = nccl_log.read(run / "nccl.log")
    assert log.world_size == 2
    assert len(log.bandwidths) == 2 and min(log.bandwidths.values()) > 0  # 1 and 4 MiB
