"""Which strategy: candidates from the shipped configurations; what fits comes first, the fastest before the others."""

import json

import pytest

from tools.__main__ import main
from tools.errors import InputError
from tools.plan import ranking
from tools.plan.ranking import Question, best_of_each, candidates, rank


def test_first_is_the_fastest_that_fits_and_the_others_say_why_not() -> None:
    ranked = rank(Question("bloom-7b1", 2, 1, "a100-80gb", batch=1))
    places = [one.prediction.verdict for one in ranked]
    assert places == sorted(places, key=["fits", "close", "does not fit"].index)
    fitting = [one.tokens_per_second for one in ranked if one.prediction.verdict == "fits"]
    assert fitting == sorted(fitting, reverse=True)
    firsts = {one.candidate.strategy: one for one in best_of_each(ranked)}
    assert firsts["ddp"].reason.startswith("does not fit: needs ")  # 16 bytes per parameter and buckets: 141 GB
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
