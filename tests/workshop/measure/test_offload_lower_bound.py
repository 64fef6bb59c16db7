"""The floor of a step with offload: what moves is the configuration's, how fast is this machine's."""

import json
from typing import Any

import pytest

from tests.launching import REPO
from workshop.measure.offload_lower_bound import main, rates_of_cpu, report, work_of
from workshop.record.errors import InputError

SEVEN = {"parameters": 7_000_000_000, "embedding_parameters": 1_000_000_000, "layers": 30, "hidden_size": 4096}
SETTINGS = {"batch_size": 4, "grad_acc": 1, "max_length": 512, "fp16": True, "bf16": False}
MEASURED = max((REPO / "logs/reference/h200x2/deepspeed-zero3-offload").iterdir())


def moved(config: str, gpus: int = 2, logit_share: float = 1, **settings: Any) -> dict[str, float]:
    record = {"config": config, "world_size": gpus, "model": SEVEN, "settings": SETTINGS | settings}
    config_file = REPO / f"deepspeed-single-gpu/ds_configs/{config}.json"
    return work_of(record, json.loads(config_file.read_text()), logit_share)


def test_amounts_of_a_step_follow_from_the_stage_and_the_micro_batches() -> None:
    """7 billion parameters on two GPUs: 7 GB of half-precision weights or gradients each, 14 GB of fp32 gradients."""
    three, two = moved("zero3_offload"), moved("zero2_offload")
    gradients_for_their_norm = 7e9
    assert three["to the GPU"] == 14e9 + gradients_for_their_norm  # weights for each of the two passes
    assert two["to the GPU"] == 7e9
    for changed, times in (({"grad_acc": 3}, 3), ({"gpus": 1}, 2), ({"fp16": False}, 2)):
        assert moved("zero3_offload", **changed)["to the GPU"] == times * three["to the GPU"]
    assert (two["to the CPU"], three["to the CPU"]) == (14e9, 7e9 + 14e9)
    assert moved("zero2_offload", grad_acc=3)["to the CPU"] == 3 * 7e9 + 14e9
    assert [two[name] for name in ("scale the gradients", "update", "make half precision")] == [56e9, 7e9, 42e9]
    skipped = two["computing"] - moved("zero2_offload", logit_share=0.25)["computing"]
    assert skipped == pytest.approx(6 * 1e9 * 0.75 * 4 * 512)  # logits that are left out are no work
    tuned = moved("zero3_offload_tuned")  # ratio 0.3, weights on the GPU: the CPU updates that part only
    found = [tuned[name] for name in ("update", "to the GPU, pageable", "to the CPU")]
    assert found == pytest.approx([0.3 * 7e9, 0.3 * 7e9, 7e9 + 0.3 * 14e9])


def test_model_computes_as_many_operations_as_its_mfu_counts() -> None:
    size = {"parameters": 8 * 10**9, "embedding_parameters": 10**9, "layers": 30, "hidden_size": 4096}
    model = size | {"attention_size": 2048, "untied_embedding": True, "idle_parameters": 3 * 10**9}
    config = {"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}
    found = work_of({"config": "", "world_size": 1, "model": model, "settings": SETTINGS}, config)
    assert found["computing"] == (6 * 4e9 + 12 * 30 * 2048 * 512) * 4 * 512


def test_step_is_compared_with_the_slowest_part_and_with_the_sum() -> None:
    rates = {"matrix": 800e12, "to cpu": 50e9, "cpu memory": 100e9, "adam": 5e9, "to gpu": 50e9, "to gpu pageable": 9e9}
    lines = report(moved("zero2_offload"), rates, step_s=7.0).splitlines()
    assert "| update | 7 billion parameters | 7 / 5 = 1.4 |" in lines
    # 56 + 42 GB of CPU memory, 14 and 7 GB over PCIe, and 0.11 s of products
    assert lines[-2:] == [
        "floor, if all parts overlap: 1.4 s; one after the other: 2.91 s",
        "measured step: 7 s, 5.00 times the floor, 2.41 times the sum",
    ]


@pytest.mark.usefixtures("optimizers_compiled")
def test_rates_are_this_machine_s_and_a_run_of_another_one_is_refused() -> None:
    assert all(rate > 0 for rate in rates_of_cpu(4 << 20, repeats=1).values())
    with pytest.raises(InputError, match=r"its GPU is \['NVIDIA H200'\], found .*; expected the same machine"):
        main(MEASURED)
