"""The floor of a step with offload: what moves is the configuration's, how fast is this machine's."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.launching import REPO
from workshop.errors import WorkshopError
from workshop.measure.machine_rates import Rates, read
from workshop.simulate.offload_lower_bound import Work, main, parts, report, run_facts, work_of

SEVEN = {"parameters": 7_000_000_000, "embedding_parameters": 1_000_000_000, "layers": 30, "hidden_size": 4096}
SETTINGS = {"batch_size": 4, "grad_acc": 1, "max_length": 512, "fp16": True, "bf16": False}
RATES = Rates(50e9, 40e9, 10e9, 8e9, cpu_memory=100e9, adam=2e9, matrix=700e12)
MEASURED = REPO / "logs/reference/h200x2/deepspeed-zero3-offload/20261122-051118-p10346"
WITH_RATES = REPO / "logs/reference/h200x2-host-g/deepspeed-single-gpu/20261122-212916-p9717"


def moved(config: str, gpus: int = 2, logit_share: float = 1, **settings: Any) -> Work:
    record = {"config": config, "world_size": gpus, "model": SEVEN, "settings": SETTINGS | settings}
    config_file = REPO / f"deepspeed-single-gpu/ds_configs/{config}.json"
    return work_of(record, json.loads(config_file.read_text()), logit_share)


def seconds(config: str, **settings: Any) -> dict[str, float]:
    return {name: amount / rate for name, (amount, _, rate) in parts(moved(config, **settings), RATES).items()}


def test_amounts_of_a_step_follow_from_the_stage_and_the_micro_batches() -> None:
    """7 billion parameters on two GPUs: 7 GB of half-precision weights or gradients each, 14 GB of fp32 gradients."""
    three, two = moved("zero3_offload"), moved("zero2_offload")
    gradients_for_their_norm = 7e9
    assert three.to_gpu_bytes == 14e9 + gradients_for_their_norm  # weights for each of the two passes
    assert two.to_gpu_bytes == 7e9
    assert moved("zero3_offload", grad_acc=3).to_gpu_bytes == 3 * three.to_gpu_bytes
    assert moved("zero3_offload", gpus=1).to_gpu_bytes == 2 * three.to_gpu_bytes
    assert moved("zero3_offload", fp16=False).to_gpu_bytes == 2 * three.to_gpu_bytes
    assert (two.to_cpu_bytes, three.to_cpu_bytes) == (14e9, 7e9 + 14e9)
    assert moved("zero2_offload", grad_acc=3).to_cpu_bytes == 3 * 7e9 + 14e9
    assert (two.scale_bytes, two.adam_parameters, two.convert_bytes) == (8 * 7e9, 7e9, 6 * 7e9)
    skipped = two.operations - moved("zero2_offload", logit_share=0.25).operations
    assert skipped == pytest.approx(6 * 1e9 * 0.75 * 4 * 512)  # logits that are left out are no work


def test_part_of_the_optimizer_that_stays_on_the_gpu_is_not_updated_by_the_cpu() -> None:
    tuned = moved("zero3_offload_tuned")  # ratio 0.3, weights on the GPU
    assert tuned.adam_parameters == pytest.approx(0.3 * 7e9)
    assert tuned.to_gpu_pageable_bytes == pytest.approx(0.3 * 7e9)
    assert tuned.to_cpu_bytes == pytest.approx(7e9 + 0.3 * 14e9)


def test_floor_is_the_slowest_part_and_the_arithmetic_is_shown() -> None:
    taken = seconds("zero3_offload")
    assert taken["update"] == max(taken.values()) == 3.5
    lines = report(moved("zero3_offload"), RATES, 7.0)
    assert "| to the GPU | 21 GB | 21 / 50 = 0.42 |" in lines
    assert [line for line in lines if line.startswith("| update")] == [
        "| update | 7 billion parameters | 7 / 2 = 3.5 |"
    ]
    assert lines[-2] == f"floor, if all parts overlap: 3.5 s; one after the other: {sum(taken.values()):.3g} s"
    assert lines[-1].startswith("measured step: 7 s, 2.00 times the floor, ")


def test_what_was_not_measured_is_said_and_not_taken_for_nothing() -> None:
    lines = report(moved("zero3_offload"), replace(RATES, to_gpu=None, matrix=None), 7.0, "2 x NVIDIA H200")
    assert "| to the GPU | 21 GB | not measured |" in lines
    assert "of the parts that were measured" in lines[-2]
    assert lines[-1] == "measured step: 7 s, but on 2 x NVIDIA H200: measure the rates there"


def test_rates_that_were_measured_beside_a_run_are_read_again(capsys: pytest.CaptureFixture[str]) -> None:
    """The arithmetic can change afterwards; the machine is gone."""
    earlier = WITH_RATES / "offload_floor.txt"
    main([str(WITH_RATES), "--rates", str(earlier)])
    printed = capsys.readouterr().out
    rates = [line for line in earlier.read_text().splitlines() if line.endswith("/s |")]
    assert [line for line in rates if line not in printed] == []
    assert "| update | 3.003 billion parameters | 3.003 / 4.84 = 0.62 |" in printed
    assert "measured step: 2.04 s, 3.29 times the floor" in printed


@pytest.mark.parametrize(
    "content", [b"\xff\xfe", b"| to gpu | fast |", b"| to gpu | 50.00 furlongs |", b"| to gpu | 1.2.3 GB/s |"]
)
def test_file_without_rates_is_an_error(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "rates.txt").write_bytes(content)
    with pytest.raises(WorkshopError, match=r"rates.txt: found no rate 'to gpu', expected the table of rates"):
        read(tmp_path / "rates.txt")


def test_rates_without_a_gpu_are_read_as_not_measured(tmp_path: Path) -> None:
    without = replace(RATES, to_gpu=None, to_cpu=None, to_gpu_pageable=None, to_cpu_pageable=None, matrix=None)
    (tmp_path / "rates.txt").write_text("\n".join(without.rows()))
    assert read(tmp_path / "rates.txt") == without


@pytest.mark.usefixtures("optimizers_compiled")
def test_machine_is_measured_and_the_run_beside_it(capsys: pytest.CaptureFixture[str]) -> None:
    main([str(MEASURED), "--mib", "4", "--repeats", "1"])
    printed = capsys.readouterr().out
    assert re.search(r"^\| cpu memory \| [\d.]+ GB/s \|$", printed, re.MULTILINE)
    assert re.search(r"^\| adam \| [\d.]+ billion parameters/s \|$", printed, re.MULTILINE)
    assert "| update | 7.069 billion parameters | 7.069 / " in printed
    assert "measured step: 6.76 s, but on 2 x NVIDIA H200" in printed


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (None, "found no run.json, expected a run folder"),
        ({"exercise": "baseline"}, "run.json: found no config, expected a run that trained with DeepSpeed"),
        (
            {"exercise": "fsdp", "config": "mine", "world_size": 1, "settings": SETTINGS, "model": SEVEN},
            "config mine: ",
        ),
    ],
)
def test_folder_without_such_a_run_is_an_error(record: Any, message: str, tmp_path: Path) -> None:
    if record:
        (tmp_path / "run.json").write_text(json.dumps(record))
    with pytest.raises(WorkshopError, match=message):
        run_facts(tmp_path)
    with pytest.raises(WorkshopError, match="config zero3: offload_optimizer is not on the CPU"):
        moved("zero3")
