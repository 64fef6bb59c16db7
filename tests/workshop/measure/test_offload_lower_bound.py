"""The floor of a step with offload: what moves is the configuration's, how fast is this machine's."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.launching import REPO
from workshop.measure.machine_rates import UNIT_OF, read, table
from workshop.measure.offload_lower_bound import main, report, run_facts, work_of
from workshop.run_folder.errors import InputError

SEVEN = {"parameters": 7_000_000_000, "embedding_parameters": 1_000_000_000, "layers": 30, "hidden_size": 4096}
SETTINGS = {"batch_size": 4, "grad_acc": 1, "max_length": 512, "fp16": True, "bf16": False}
RATES = dict(zip(UNIT_OF, (50e9, 40e9, 10e9, 8e9, 100e9, 2e9, 700e12), strict=True))
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


def test_floor_is_the_slowest_part_and_what_was_not_measured_is_not_taken_for_nothing() -> None:
    lines = report(moved("zero3_offload"), RATES, 7.0)
    assert "| to the GPU | 21 GB | 21 / 50 = 0.42 |" in lines
    assert "| update | 7 billion parameters | 7 / 2 = 3.5 |" in lines
    assert lines[-2].startswith("floor, if all parts overlap: 3.5 s; one after the other: ")
    assert lines[-1].startswith("measured step: 7 s, 2.00 times the floor, ")
    lines = report(moved("zero3_offload"), RATES | {"to gpu": None, "matrix": None}, 7.0, "2 x NVIDIA H200")
    assert "| to the GPU | 21 GB | not measured |" in lines
    assert "of the parts that were measured" in lines[-2]
    assert lines[-1] == "measured step: 7 s, but on 2 x NVIDIA H200: measure the rates there"


@pytest.mark.parametrize("content", [b"\xff\xfe", b"| to gpu | 50.00 furlongs |", b"| to gpu | 1.2.3 GB/s |"])
def test_file_without_rates_is_an_error(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "rates.txt").write_bytes(content)
    with pytest.raises(InputError, match=r"rates.txt: found no rate 'to gpu', expected the table of rates"):
        read(tmp_path / "rates.txt")


@pytest.mark.usefixtures("optimizers_compiled")
def test_machine_is_measured_and_the_run_beside_it(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    main([str(MEASURED), "--mib", "4", "--repeats", "1"])
    printed = capsys.readouterr().out
    (tmp_path / "rates.txt").write_text(printed)
    rates = read(tmp_path / "rates.txt")
    assert rates["cpu memory"] > 0 and rates["adam"] > 0
    assert "\n".join(table(rates)) in printed
    assert "| update | 7.069 billion parameters | 7.069 / " in printed
    assert "measured step: 6.76 s, but on 2 x NVIDIA H200" in printed


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"exercise": "baseline"}, "run.json: found no config, expected a run that trained with DeepSpeed"),
        ({"exercise": "fsdp", "config": "mine", "world_size": 1, "settings": SETTINGS, "model": SEVEN}, "config mine"),
    ],
)
def test_folder_without_such_a_run_is_an_error(record: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"found no run\.json, expected a run folder"):
        run_facts(tmp_path)
    (tmp_path / "run.json").write_text(json.dumps(record))
    with pytest.raises(InputError, match=message):
        run_facts(tmp_path)
    with pytest.raises(InputError, match="config zero3: offload_optimizer is not on the CPU"):
        moved("zero3")
