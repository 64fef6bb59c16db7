"""The floor of a step with offload: what moves is the configuration's, how fast is this machine's."""

import json
import re
from typing import Any

import pytest

from tests.launching import REPO
from workshop.measure.offload_lower_bound import main, work_of

SEVEN = {"parameters": 7_000_000_000, "embedding_parameters": 1_000_000_000, "layers": 30, "hidden_size": 4096}
SETTINGS = {"batch_size": 4, "grad_acc": 1, "max_length": 512, "fp16": True, "bf16": False}
MEASURED = REPO / "logs/reference/h200x2/deepspeed-zero3-offload/20261122-051118-p10346"


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


@pytest.mark.usefixtures("optimizers_compiled")
def test_machine_is_measured_and_the_run_beside_it(capsys: pytest.CaptureFixture[str]) -> None:
    main([str(MEASURED), "--mib", "4", "--repeats", "1"])
    printed = capsys.readouterr().out
    for name in ("cpu memory", "adam"):
        assert float(re.search(rf"\| {name} \| ([\d.]+) ", printed)[1]) > 0
    assert "| update | 7.069 billion parameters | 7.069 / " in printed
    assert "measured step: 6.76 s, but on 2 x NVIDIA H200" in printed
