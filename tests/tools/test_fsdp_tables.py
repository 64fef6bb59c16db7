"""Tables 10 to 12: each row finds its own runs, and factors compare with one GPU of the same configuration."""

from pathlib import Path

import pytest

from tools import tables
from tools.runs import find_runs

README = Path(__file__).parents[2] / "fsdp/README.md"


@pytest.fixture
def filled(logs):
    def fill(number: str) -> dict[str, list[str]]:
        (table,) = (table for table in tables.definitions(README) if table.number == number)
        cells = tables.fill(table, find_runs(logs)).cells
        return {row[0]: [cell.text for cell in texts if cell] for row, texts in zip(table.rows, cells, strict=True)}

    return fill


@pytest.fixture
def fsdp_run(make_run):
    def make(name: str, config: str, nodes: int, gpus: int, speed: float = 10.0, runtime: float = 100.0, **record):
        place = {"exercise": "fsdp", "experiment": "fsdp", "config": config, "nodes": nodes, "gpus_per_node": gpus}
        summary = {"train/samples_per_second": speed, "train/steps_per_second": speed / 16, "train_runtime_s": runtime}
        summary |= {"peak_mem_alloc_mib": 1000.0, "train_loss": 1.5, "avg_gpu_util_%": 90.0}
        return make_run(name, place | {"world_size": nodes * gpus} | record, summary)

    return make


def test_strategies_are_told_apart_and_compared_on_four_gpus(fsdp_run, filled) -> None:
    fsdp_run("r1", "full_shard", 1, 4, speed=20.0)
    fsdp_run("r2", "full_shard", 1, 1, speed=5.0)  # newer, but for Table 11
    fsdp_run("r3", "full_shard_offload", 1, 4, speed=8.0)
    fsdp_run("r4", "ddp", 1, 4, speed=25.0, sharding={"method": "ddp"})
    rows = filled("10")
    assert rows["DDP"] == ["25.00", "640.0", "21,658", "10,415", "8,000", "90.0", "1.5000"]
    assert rows["FULL_SHARD"][0] == "20.00"
    assert rows["FULL_SHARD + offload"][0] == "8.00"
    assert rows["HYBRID_SHARD"] == ["not measured"] * 7


def test_scale_factors_are_against_one_gpu(fsdp_run, filled) -> None:
    fsdp_run("r1", "full_shard", 1, 1, speed=10.0, runtime=400.0)
    fsdp_run("r2", "full_shard", 1, 4, speed=30.0, runtime=160.0)
    fsdp_run("r3", "shard_grad_op", 1, 1, speed=99.0)
    fsdp_run("r4", "full_shard", 4, 1, speed=15.0, runtime=800.0)
    assert filled("11")["1 GPU"] == ["1", "10.00", "1.00", "400.0", "1.00", "1.5000", "1.05"]
    assert filled("11")["4 GPUs"] == ["4", "30.00", "3.00", "160.0", "2.50", "1.5000", "1.05"]
    assert filled("12")["1 node"][2] == "1.00"
    assert filled("12")["4 nodes"] == ["4", "15.00", "1.50", "800.0", "0.50", "1.5000", "1.05"]


def test_factor_without_the_one_gpu_run_is_not_made_up(fsdp_run, filled) -> None:
    fsdp_run("r1", "full_shard", 1, 2, speed=18.0)
    assert filled("11")["2 GPUs"][1:3] == ["18.00", "not measured"]
