"""Tables 3 to 9: each cell finds its own runs, and the READMEs' arithmetic is computed here again."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tools.tables.repository import ROOT

SINGLE, MULTI, ZERO3 = (ROOT / f"deepspeed-{name}" for name in ("single-gpu", "multi-gpu", "zero3-offload"))
GPU_LOG = """\
timestamp, index, name, memory.used [MiB], memory.total [MiB], utilization.gpu [%]
2026/11/21 09:45:01.000, 0, H200, {used}, 143771, 50
"""
# Width and number of blocks.
BLOOM = {"560m": (1024, 24), "1b7": (2048, 24), "3b": (2560, 30), "7b1": (4096, 30)}


@pytest.fixture
def run(make_run: Callable[..., Path]) -> Callable[..., Path]:
    """run("r1", SINGLE, "zero2_offload", model="bloom-3b", used=100): a completed run with that peak on its GPUs."""

    def make(name: str, exercise: Path, config: str, *, model: str, used: int = 1, gpus: int = 1, **record: object):
        # Summaries as the runs write them: samples/s is over all GPUs.
        summary = {"train/samples_per_second": 10.0 * gpus, "train/steps_per_second": 10.0 / 16, "train_loss": 1.5}
        place = {"exercise": exercise.name, "experiment": exercise.name, "config": config, "model": {"name": model}}
        place |= {"gpus_per_node": gpus, "world_size": gpus * record.get("nodes", 1)}
        return make_run(name, place | record, summary, **{"gpu_memory.csv": GPU_LOG.format(used=used)})

    return make


def test_K7_samples_per_second_are_the_total_which_grows_under_weak_scaling(run, filled) -> None:
    for gpus in (2, 4):
        run(f"r{gpus}", MULTI, "zero0", model="bloom-1b7", gpus=gpus, train_examples=10_000 * gpus)
    run("r8", MULTI, "zero0", model="bloom-1b7", gpus=8, train_examples=10_000)  # 10,000 in all: strong scaling
    rows = filled(MULTI, "5")
    assert rows["Samples/sec"] == ["20.00", "40.00", "not measured", "not measured"]
    assert rows["Steps/sec"][:2] == ["0.625", "0.625"]


def sharding(method: str, *parts: bool, offload: bool = False) -> dict[str, object]:
    seen = dict(zip(("parameters", "gradients", "optimizer"), parts, strict=True))
    return {"method": method, **seen, "cpu_offload": offload}


def test_a_newer_run_that_shards_less_does_not_hide_what_the_method_can(run, filled) -> None:
    fsdp = ROOT / "fsdp"
    run("r1", fsdp, "full_shard", model="bloom-560m", gpus=4, sharding=sharding("fsdp2", True, True, True))
    run("r2", fsdp, "shard_grad_op", model="bloom-560m", gpus=4, sharding=sharding("fsdp2", False, True, True))
    assert filled(ZERO3, "9")["Parameter sharding"][2] == "yes"


def parameters(name: str) -> int:
    """Tied embedding and its norm, the blocks, the last norm."""
    width, blocks = BLOOM[name]
    return 250_880 * width + 2 * width + blocks * (12 * width**2 + 13 * width) + 2 * width


def first_cells(document: Path, row: str) -> list[str]:
    (line,) = re.findall(rf"^\| {row} \|(.*)\|$", document.read_text(), re.MULTILINE)
    return [cell.strip() for cell in line.split("|")]


def bytes_left(stage: int, gpus: float) -> float:
    """Per parameter on each GPU: fp16 weights, fp16 gradients, fp32 weights with two moments."""
    parts = ((2, 3), (2, 2), (12, 1))  # bytes, and the stage from which on they are split
    return sum(size / gpus if stage >= split_from else size for size, split_from in parts)


def test_K7_memory_of_the_stages_is_16_bytes_split_and_has_no_activations_in_it() -> None:
    for stage in range(4):
        cells = first_cells(MULTI / "README.md", f"{stage}")
        figures = [f"{bytes_left(stage, gpus):g}" for gpus in (2, 8)]
        gib = [f"{bytes_left(stage, gpus) * parameters('1b7') / 2**30:.1f}" for gpus in (2, 8)]
        assert cells[-4:] == [figures[0], gib[0], figures[1], gib[1]]


@pytest.mark.parametrize("name", BLOOM)
def test_states_of_each_model_are_16_bytes_per_parameter(name: str) -> None:
    total, weights = (f"{size * parameters(name) / 2**30:.1f}" for size in (16, 2))
    assert first_cells(SINGLE / "RESULTS.md", f"BLOOM-{name}") == [f"{parameters(name):,}", total, weights]
