"""Which strategy: candidates from the shipped configurations; what fits comes first, the fastest before the others."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.simulated_here import simulated_here
from tools.errors import InputError
from tools.plan import ranking
from tools.plan.predict import predict
from tools.plan.ranking import NO_SCRIPT, Candidate, Question, best_of_each, candidates, layouts, rank

SEVEN = Question("bloom-7b1", 2, 1, "a100-80gb", batch=1)
TINY = Question("tiny", 2, 1, "h200", batch=2, length=64, tokens=1e6)
GPT2 = Question("gpt2", 1, 1, "h200", batch=1)
SEVENTY = Question("llama-3.1-70b", 8, 1, "h100-80gb", batch=1)
LONG = Question("tiny-llama", 4, 2, "h200", batch=2, length=8192)


@pytest.fixture(scope="module", autouse=True)
def without_processes() -> Iterator[None]:
    with simulated_here():
        yield


@pytest.fixture(scope="module")
def tiny() -> list[Candidate]:
    return rank(TINY)


@pytest.fixture(scope="module")
def gpt2() -> list[Candidate]:
    return rank(GPT2)


def test_first_is_the_fastest_that_fits_and_the_others_say_why_not() -> None:
    ranked = rank(SEVEN)
    full = [one for one in ranked if not one.method]
    places = [one.prediction.verdict for one in full]
    assert places == sorted(places, key=["fits", "close", "does not fit"].index)
    fitting = [one.prediction.ranges["step_time_s"].expected for one in full if one.prediction.verdict == "fits"]
    assert fitting == sorted(fitting)
    firsts = {one.strategy: one for one in best_of_each(ranked)}
    assert firsts["ddp"].prediction.reason.startswith("does not fit: needs ")  # 16 bytes per parameter: 113 GB
    assert firsts["zero3_offload"].prediction.verdict == "fits"
    assert "hybrid_shard" not in firsts  # two ranks, two replicas: nothing left to share
    assert f"First: {ranked[0].strategy}" in ranking.text(SEVEN, ranked)


def test_adapters_fit_where_full_training_cannot_and_are_never_first() -> None:
    ranked = rank(SEVENTY)
    assert {one.method for one in ranked[:-2]} == {""} and "fits" not in {one.prediction.verdict for one in ranked[:-2]}
    # In bf16: an eighth of all weights, the whole embedding, head and one block; beside them adapters and activations.
    weights_mib = 2 * (70_553_706_496 / 8 + 2 * 128_256 * 8192 + 855_654_400) / 2**20
    sharded = (one for one in ranking.adapters(SEVENTY) if one.strategy == "LoRA 8, full_shard")
    recomputing = next(one for one in sharded if one.checkpointing)
    (prediction,) = predict([recomputing.workload], SEVENTY.hardware)
    assert weights_mib < prediction.ranges["peak_allocated_mib"].expected < weights_mib + 2_000
    assert {one.prediction.verdict for one in ranked[-2:]} == {"fits"}
    assert ranked[-2].line.endswith("METHOD=lora LORA_RANK=8 --gpus-per-node=8 further/lora/lora.slurm planned.json")


def test_gpu_hours_are_of_the_same_work_for_all(tiny: list[Candidate]) -> None:
    """ZeRO took its exercise's 40,000 examples and FSDP the 500 of its own: 0.9 hours beside 0.2."""
    assert TINY.steps == 3907  # 1e6 / 256, rounded up
    assert {one.workload.steps * one.workload.tokens_per_step for one in tiny} == {1_000_192}
    assert {(one.workload.examples, one.workload.eval_examples) for one in tiny} == {(2 * 2 * 3907, 100)}
    entry = ranking.as_json(TINY, tiny)["candidates"][0]
    expected = 1e9 / entry["tokens_per_second"]["expected"] * 2 / 3600
    assert entry["gpu_hours_per_1e9_tokens"]["expected"] == pytest.approx(expected, rel=1e-4)
    text = ranking.text(TINY, tiny)
    assert "1,000,192 tokens, padding included, in 3,907 steps" in text
    assert "MODEL_NAME=tiny MODEL_INIT=random" in text and "no name on the hub is known here for tiny" in text


def test_node_without_the_cpu_memory_does_not_fit(gpt2: list[Candidate]) -> None:
    """948 GiB of CPU memory in a node were said to fit."""
    assert "nodes with 2,048 GiB of CPU memory" in ranking.text(GPT2, gpt2)
    offload = next(one.prediction for one in gpt2 if one.strategy == "zero2_offload")
    small = replace(offload, gpu=replace(GPT2, node_gib=1).hardware)
    assert small.reason == f"does not fit: needs {offload.ranges['cpu_mib'].expected / 1024:,.0f} of a node's 1 GiB"
    between = replace(offload, gpu=replace(GPT2, node_gib=(small.least_cpu_gib + small.largest_cpu_gib) / 2).hardware)
    assert between.reason.startswith("close: may come to ")


def test_layouts_of_long_rows_do_the_same_work_and_name_the_script_that_runs_them() -> None:
    """Checkpointed blocks with flex_attention could not be simulated."""
    ranked = rank(LONG)
    firsts = {one.strategy: one for one in best_of_each(ranked)}
    assert {one.workload.steps * one.workload.tokens_per_step for one in ranked} == {LONG.tokens_per_step * LONG.steps}
    speeds = [one.prediction.ranges for one in ranked]
    rows = [one["samples_per_second"].expected * 8192 for one in speeds]
    assert [one["tokens_per_second"].expected for one in speeds] == pytest.approx(rows)
    unmarked = {name for name, one in firsts.items() if one.traffic["runs_in"] != NO_SCRIPT}
    assert firsts.keys() - unmarked == {"tp 2 x cp 2", "tp 2 x pp 2", "cp 2 x pp 2"}
    assert {"dp 4", "cp 4", "dp 2 x tp 2", "dp 2 x pp 2", "full_shard", "zero3"} < firsts.keys()
    assert "tp 4" not in firsts  # two heads of keys
    line = firsts["dp 2 x cp 2"].line
    assert "BATCH_SIZE=1 GRAD_ACC=4 CP_SIZE=2" in line
    assert f" TRAIN_SIZE={LONG.steps * LONG.gpus * LONG.batch} " in line, "no epoch might have a whole step"
    assert line.endswith("--nodes=2 --gpus-per-node=2 further/dimensions/dimensions.slurm cp.py")
    assert f"| {NO_SCRIPT} |" in ranking.text(LONG, ranked) and ranked[0].command
    assert not list(layouts(replace(LONG, length=4096))) + list(layouts(replace(LONG, model="bloom-7b1")))


def test_folder_of_a_configuration_is_planned_by_its_path(tmp_path: Path) -> None:
    folder = tmp_path / "My-Model"
    with pytest.raises(InputError, match=r"My-Model: unknown; .* or give a folder that has one"):
        replace(GPT2, model=str(folder)).check()
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "olmo2", "_name_or_path": "somebody/base"}')
    own = next(iter(candidates(replace(GPT2, model=str(folder)))))
    assert own.workload.shape["model_name"] == str(folder)
    assert own.line.startswith(f"MODEL_NAME={folder} MODEL_INIT=random ")
