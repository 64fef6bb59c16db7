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


def test_runtimes_of_unequal_numbers_of_steps_are_no_offload_trade_off(make_run, filled) -> None:
    header, line = "step,step_time_s,tokens,real_tokens,loss,epoch\n", "1,0.5,2048,10,9.0,0.1\n"
    place = {"exercise": MULTI.name, "experiment": MULTI.name, "model": {"name": "bloom-1b7"}}
    place |= {"gpus_per_node": 2, "world_size": 2}
    runs = {"zero1": 20, "zero1_offload": 10, "zero2": 20, "zero2_offload": 20}
    for config, steps in runs.items():
        summary = {"train_runtime_s": 10.0 if config == "zero2" else 12.0}
        make_run(config, place | {"config": config}, summary, **{"steps.csv": header + line * steps})
    assert filled(MULTI, "7")["Stage 1"][3:] == ["12.0 s", "12.0 s", "unequal work"]
    assert filled(MULTI, "7")["Stage 2"][3:] == ["10.0 s", "12.0 s", "20.0"]


def sharding(method: str, *parts: bool, offload: bool = False) -> dict[str, object]:
    seen = dict(zip(("parameters", "gradients", "optimizer"), parts, strict=True))
    return {"method": method, **seen, "cpu_offload": offload}


LIBRARY = {"own_modules": []}
CHANGED = {"own_modules": ["workshop.fast_bloom.model.BloomForCausalLM"]}
TRAINER = {"trainer_classes": ["workshop.training.callbacks.MeasuredTrainer", "transformers.trainer.Trainer"]}


def test_classes_that_were_not_looked_at_or_were_our_own_are_no_yes(run, filled) -> None:
    fsdp, shards = ROOT / "fsdp", (True, True, True)
    run("r1", fsdp, "full_shard", model="bloom-560m", gpus=2, sharding=sharding("fsdp2", *shards) | LIBRARY, **TRAINER)
    run("r2", fsdp, "full_shard", model="bloom-560m", gpus=2, sharding=sharding("fsdp2", *shards) | CHANGED, **TRAINER)
    run("r3", fsdp, "fsdp1_full_shard", model="bloom-560m", gpus=2, sharding=sharding("fsdp1", *shards))
    run("r4", fsdp, "ddp", model="bloom-560m", gpus=2, sharding=sharding("ddp", False, False, False) | CHANGED)
    run("r5", ZERO3, "zero3", model="x", gpus=2, sharding=sharding("zero3", *shards), trainer_classes=["by_hand.Loop"])
    rows = filled(ZERO3, "9")
    assert rows["No model-code change"] == ["not measured", "not measured", "yes", "not measured"]
    assert rows["Works with HF Trainer"] == ["not measured", "not measured", "yes", "not measured"]


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
