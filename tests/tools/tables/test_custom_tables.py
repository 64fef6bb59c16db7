"""Tables 13 to 16: which run fills which row, and what the figures of the custom model are computed from."""

import pytest

from tools.logs.runs import read_run
from tools.tables.definitions import definitions
from tools.tables.fill import fill
from tools.tables.markdown import cells
from tools.tables.repository import ROOT

CUSTOM = {
    "exercise": "custom_model",
    "experiment": "custom_model",
    "model": {"name": "simple-gpt", "parameters": 254_527_488},
    "flops_per_gpu_per_step": 6_382_052_966_400,
}
SUMMARY = {
    "train_runtime_s": 100.0,
    "train_loss": 2.5,
    "train_samples_per_second": 15.0,
    "train/samples_per_second": 20.0,
    "train/steps_per_second": 1.25,
    "avg_mem_total_MB": 20_000.0,
    "avg_gpu_util_%": 90.0,
}
FABRIC = """\
# Collective test starting: all_reduce_perf
#  Rank  0 Group  0 Pid  1 on node1 device  0 NVIDIA H200
#  Rank  1 Group  0 Pid  2 on node2 device  0 NVIDIA H200
  4194304  1048576  float  sum  -1  N/A  N/A  N/A  N/A  9491.78  0.442  12.345  N/A
"""


@pytest.fixture
def row(make_run):
    """row("14", "Single node, 2 GPUs", runs) -> column name to cell, the runs being (record, summary, files)."""

    def filled_row(number: str, label: str, *runs: tuple[dict, dict, dict]) -> dict[str, str]:
        made = [
            read_run(make_run(f"20261121-09450{i}-j1", CUSTOM | record, SUMMARY | summary, **files))
            for i, (record, summary, files) in enumerate(runs)
        ]
        tables = definitions(ROOT / "custom_model")
        (table,) = [table for table in tables if table.number == number]
        lines = fill(table, made).markdown().splitlines()
        (line,) = [line for line in lines if line.startswith(f"| {label} |")]
        return dict(zip(table.header, cells(line), strict=True))

    return filled_row


def run(nodes=1, gpus_per_node=1, config=None, fsdp=True, summary=(), layers=3, **files):
    settings = {"use_fsdp": fsdp, "num_layers": layers, "batch_size": 8}
    record = {"nodes": nodes, "gpus_per_node": gpus_per_node, "world_size": nodes * gpus_per_node, "config": config}
    return record | {"settings": settings}, dict(summary), files


def test_K12_bandwidth_of_another_world_is_not_shown(row):
    two_worlds = FABRIC.replace("Rank  1", "Rank  0")
    filled = row("15", "2 nodes", run(nodes=2, **{"nccl.log": two_worlds}))
    assert filled["AllReduce BW (GB/s)"] == "a world of 1, not 2"


def test_weak_scaling_efficiency_is_baseline_over_current_step_time(row):
    two = run(gpus_per_node=2, config="constant")
    slower = run(gpus_per_node=4, config="constant", layers=8, summary={"train/steps_per_second": 1.0})
    other_rule = run(gpus_per_node=2, config="published", summary={"train/steps_per_second": 9.0})
    filled = row("16", "Constant work | 4 GPUs", two, slower, other_rule)
    assert filled["Efficiency (%)"] == "80.0"
    assert [filled[name] for name in ("Num Layers", "Per-GPU Batch", "Total Params (M)")] == ["8", "8", "254.5"]
    assert filled["FLOPs per GPU per Step (TFLOP)"] == "6.38"
