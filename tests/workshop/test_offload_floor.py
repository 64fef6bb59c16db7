"""The floor of a step with offload: what moves is the configuration's, how fast is this machine's."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.launching import REPO
from workshop.errors import WorkshopError
from workshop.offload_floor import Rates, Work, main, parts_s, report, run_facts, work_of

SEVEN = {"parameters": 7_000_000_000, "layers": 30, "hidden_size": 4096}
SETTINGS = {"batch_size": 4, "grad_acc": 1, "max_length": 512, "fp16": True, "bf16": False}
RATES = Rates(50e9, 40e9, 10e9, 8e9, adam=2e9, matrix=700e12)
MEASURED = REPO / "logs/reference/h200x2/deepspeed-zero3-offload/20261122-051118-p10346"


def moved(config: str, gpus: int = 2, **settings: Any) -> Work:
    record = {"config": config, "world_size": gpus, "model": SEVEN, "settings": SETTINGS | settings}
    return work_of(record, json.loads((REPO / f"deepspeed-single-gpu/ds_configs/{config}.json").read_text()))


def test_stage_3_fetches_its_weights_twice_in_each_micro_batch_and_stage_2_once_in_a_step() -> None:
    """7 billion parameters on two GPUs: 7 GB of half-precision weights each."""
    three, two = moved("zero3_offload"), moved("zero2_offload")
    assert (three.to_gpu_bytes, three.to_cpu_bytes) == (14e9, 7e9)
    assert (two.to_gpu_bytes, two.to_cpu_bytes) == (7e9, 7e9)
    assert three.adam_parameters == two.adam_parameters == 7e9
    again = moved("zero3_offload", grad_acc=3)
    assert (again.to_gpu_bytes, again.to_cpu_bytes) == (3 * 14e9 + 2 * 7e9, 3 * 7e9)
    assert moved("zero3_offload", gpus=1).to_gpu_bytes == 2 * three.to_gpu_bytes
    assert moved("zero3_offload", fp16=False).to_gpu_bytes == 2 * three.to_gpu_bytes


def test_part_of_the_optimizer_that_stays_on_the_gpu_is_not_updated_by_the_cpu() -> None:
    tuned = moved("zero3_offload_tuned")  # ratio 0.3, weights on the GPU
    assert tuned.adam_parameters == pytest.approx(0.3 * 7e9)
    assert tuned.to_gpu_bytes == pytest.approx(0.3 * 7e9)


def test_floor_is_the_slowest_part_and_the_arithmetic_is_shown() -> None:
    work = moved("zero3_offload")
    seconds = parts_s(work, RATES)
    assert seconds["update"] == 3.5
    assert seconds["to the GPU"] == pytest.approx(0.28)
    lines = report(work, RATES, 7.0)
    assert "| to the GPU | 14 GB | 14 / 50 = 0.28 |" in lines
    assert lines[-2].startswith("floor, if all parts overlap: 3.5 s; one after the other: ")
    assert lines[-1] == "measured step: 7 s, 2.00 times the floor"


def test_update_has_one_time_the_measured_one() -> None:
    """Beside it stood a bound by the memory's rate, which could be longer: that rate left out what a write reads."""
    updates = [line for line in report(moved("zero3_offload"), RATES, 7.0) if line.startswith("| update")]
    assert updates == ["| update | 7 billion parameters | 7 / 2 = 3.5 |"]


def test_what_was_not_measured_is_said_and_not_taken_for_nothing() -> None:
    lines = report(moved("zero3_offload"), replace(RATES, to_gpu=None, matrix=None), 7.0, "2 x NVIDIA H200")
    assert "| to the GPU | 14 GB | not measured |" in lines
    assert "of the parts that were measured" in lines[-2]
    assert lines[-1] == "measured step: 7 s, but on 2 x NVIDIA H200: measure the rates there"


@pytest.mark.usefixtures("optimizers_compiled")
def test_machine_is_measured_and_the_run_beside_it(capsys: pytest.CaptureFixture[str]) -> None:
    main([str(MEASURED), "--mib", "4", "--repeats", "1"])
    printed = capsys.readouterr().out
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


def test_run_without_offload_is_an_error() -> None:
    with pytest.raises(WorkshopError, match="config zero3: offload_optimizer is not on the CPU"):
        moved("zero3")
