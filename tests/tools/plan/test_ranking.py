"""Which strategy: candidates from the shipped configurations; what fits comes first, the fastest before the others."""

import json
import math
import re
from dataclasses import replace

import pytest

from run_folder.settings import is_tiny
from tools.__main__ import main
from tools.errors import InputError
from tools.plan import ranking
from tools.plan.ranking import Question, Ranked, best_of_each, candidates, rank


def test_first_is_the_fastest_that_fits_and_the_others_say_why_not() -> None:
    ranked = rank(Question("bloom-7b1", 2, 1, "a100-80gb", batch=1))
    places = [one.prediction.verdict for one in ranked]
    assert places == sorted(places, key=["fits", "close", "does not fit"].index)
    fitting = [one.tokens_per_second for one in ranked if one.prediction.verdict == "fits"]
    assert fitting == sorted(fitting, reverse=True)
    firsts = {one.candidate.strategy: one for one in best_of_each(ranked)}
    assert firsts["ddp"].prediction.reason.startswith(
        "does not fit: needs "
    )  # 16 bytes per parameter and buckets: 141 GB
    assert firsts["zero3_offload"].prediction.verdict == "fits"
    assert "hybrid_shard" not in firsts  # two ranks, two replicas: nothing left to share
    text = ranking.text(Question("bloom-7b1", 2, 1, "a100-80gb", batch=1), ranked)
    assert f"First: {ranked[0].candidate.strategy}" in text


def test_another_models_fsdp_configuration_names_no_bloom_block() -> None:
    found = {one.strategy: one for one in candidates(Question("llama-3.1-8b", 4, 2, "h100-80gb", batch=1))}
    full_shard = found["full_shard"]
    assert full_shard.changed and full_shard.line.endswith("fsdp/multi_node.slurm planned.json")
    assert "transformer_layer_cls_to_wrap" not in full_shard.config
    assert full_shard.workload.strategy.world_size == 4
    assert full_shard.workload.setup.nodes == 2
    assert not found["zero3"].changed


def test_checkpointing_is_the_configurations_matter_under_fsdp_only() -> None:
    found = [one for one in candidates(Question("bloom-560m", 2, 1, "h200", batch=1)) if one.checkpointing]
    under_fsdp = next(one for one in found if one.strategy == "full_shard")
    assert under_fsdp.config["activation_checkpointing"] and "GRADIENT_CHECKPOINTING" not in under_fsdp.line
    assert "GRADIENT_CHECKPOINTING=true" in next(one for one in found if one.strategy == "zero2").line


TINY = Question("tiny", 2, 1, "h200", batch=2, length=64, tokens=1e6)
GPT2 = Question("gpt2", 1, 1, "h200", batch=1)


@pytest.fixture(scope="module")
def tiny() -> list[Ranked]:
    return rank(TINY)


@pytest.fixture(scope="module")
def gpt2() -> list[Ranked]:
    return rank(GPT2)


def test_gpu_hours_are_of_the_same_work_for_all(tiny: list[Ranked]) -> None:
    """ZeRO took its exercise's 40,000 examples and FSDP the 500 of its own: 0.9 hours beside 0.2."""
    assert TINY.steps == 3907  # 1e6 / 256, rounded up
    assert {one.prediction.time.steps * one.prediction.time.tokens for one in tiny} == {1_000_192}
    lengths = [one.candidate.workload.length for one in tiny]
    assert {(length.examples, length.eval_examples) for length in lengths} == {(2 * 2 * 3907, 100)}
    entry = ranking.as_json(TINY, tiny)["candidates"][0]
    expected = 1e9 / entry["tokens_per_second"]["expected"] * 2 / 3600
    assert entry["gpu_hours_per_1e9_tokens"]["expected"] == pytest.approx(expected, rel=1e-4)
    assert "1,000,192 tokens, padding included, in 3,907 steps" in ranking.text(TINY, tiny)


def test_random_weights_are_asked_for_with_a_reason_where_no_hub_name_is_known(tiny: list[Ranked]) -> None:
    text = ranking.text(TINY, tiny)
    assert "MODEL_NAME=tiny MODEL_INIT=random" in text
    assert "MODEL_INIT=random: no name on the hub is known here for tiny" in text


def test_printed_command_asks_for_what_is_predicted(gpt2: list[Ranked]) -> None:
    command = ranking.text(GPT2, gpt2).split("sbatch ")[1].split("\n")[0]
    found = gpt2[0].prediction
    assert f"--mem={math.ceil(found.largest_cpu_gib)}G" in command
    hours, minutes, _ = map(int, re.search(r"--time=(\d+):(\d+):(\d+)", command).groups())
    assert 60 * hours + minutes >= found.ranges["total_runtime_s"].largest / 60
    assert "--gpus-per-node=1" in command
    # Its weights are on the hub: each rank reads them in fp32 on the CPU.
    assert "MODEL_INIT" not in gpt2[0].candidate.line
    assert found.loading_mib == pytest.approx(4 * 124_439_808 / 2**20)


def test_node_without_the_cpu_memory_does_not_fit(gpt2: list[Ranked]) -> None:
    """948 GiB of CPU memory in a node were said to fit."""
    assert "nodes with 2,048 GiB of CPU memory" in ranking.text(GPT2, gpt2)
    offload = next(one.prediction for one in gpt2 if one.candidate.strategy == "zero2_offload")
    small = replace(offload, gpu=replace(GPT2, node_gib=1).hardware)
    assert small.reason == f"does not fit: needs {offload.cpu.expected / 1024:,.0f} of a node's 1 GiB"
    between = replace(offload, gpu=replace(GPT2, node_gib=(small.least_cpu_gib + small.largest_cpu_gib) / 2).hardware)
    assert between.reason.startswith("close: may come to ")


def test_every_shipped_shape_but_the_tiny_ones_has_a_hub_name() -> None:
    shapes = {path.stem for path in ranking.SHAPES.glob("*.json")}
    assert {name for name in shapes if not is_tiny(name)} == ranking.HUB_NAMES.keys()


def test_a_batch_is_split_without_a_rest() -> None:
    assert ranking._micro_batches(16) == [16, 8, 4, 2, 1]
    assert ranking._micro_batches(12) == [12, 6, 3, 1]
    assert ranking._micro_batches(7) == [7, 1]


def test_ladders_rung_keeps_its_switches_and_zero3_is_not_compiled() -> None:
    found = {one.strategy: one.workload for one in candidates(Question("bloom-1b7", 4, 1, "h200", rung="11_labelled"))}
    assert found["full_shard"].shape["compile"] and found["full_shard"].length.packing
    assert not found["zero3"].shape["compile"]


@pytest.mark.parametrize(
    ("question", "says"),
    [
        (Question("gpt2", 16, 1, "h200"), "--gpus 16 --nodes 1: a node of h200 holds 8; expected --nodes 2 or more"),
        (Question("gpt2", 12, 5, "h200"), "expected as many GPUs on each node"),
        (Question("gpt2", 0, 1, "h200"), "--gpus 0: expected at least 1"),
        (Question("gpt2", 8, 1, "h200", tokens=float("nan")), "--tokens nan: expected more than 0"),
        (Question("gpt2", 8, 2, "h200", fabric_gb_per_s=0), "--fabric 0: expected more than 0"),
    ],
)
def test_counts_that_no_cluster_has(question: Question, says: str) -> None:
    with pytest.raises(InputError, match=says):
        question.check()


def test_v100_trains_in_fp16_because_it_has_no_bf16() -> None:
    assert Question("gpt2", 1, 1, "v100-32gb").precision == "fp16"
    assert Question("gpt2", 1, 1, "h200").precision == "bf16"


def test_command_answers_as_json_and_refuses_unknown_names(capsys) -> None:
    assert main(["plan", "--model", "tiny", "--gpu", "h200", "--batch", "1", "--length", "64", "--format", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["candidates"][0]["verdict"] == "fits"
    assert {"one GPU", "zero0", "zero3_offload"} <= {one["strategy"] for one in answer["candidates"]}
    assert main(["plan", "--model", "bloom-9b", "--gpu", "h200"]) == 2
    assert "--model bloom-9b: unknown; expected one of tiny, bloom-1b1" in capsys.readouterr().err
    assert main(["plan", "--model", "gpt2", "--gpu", "b300"]) == 2
    assert main(["plan", "fsdp", "--model", "gpt2", "--gpu", "h200"]) == 2
    assert "changes nothing beside --model" in capsys.readouterr().err
