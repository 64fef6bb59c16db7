"""Tables 13 to 16: which run fills which row, and what the figures of the custom model are computed from."""

import pytest

from tools.tables.repository import ROOT

CUSTOM = {
    "exercise": "custom_model",
    "experiment": "custom_model",
    "model": {"name": "simple-gpt", "parameters": 254_527_488},
    "flops_per_gpu_per_step": 6_382_052_966_400,
}
FABRIC = """\
# Collective test starting: all_reduce_perf
#  Rank  0 Group  0 Pid  1 on node1 device  0 NVIDIA H200
#  Rank  1 Group  0 Pid  2 on node2 device  0 NVIDIA H200
  4194304  1048576  float  sum  -1  N/A  N/A  N/A  N/A  9491.78  0.442  12.345  N/A
"""


@pytest.fixture
def run(make_run):
    def make(name, nodes=1, gpus_per_node=1, config=None, steps_per_second=1.25, layers=3, **files):
        settings = {"use_fsdp": True, "num_layers": layers, "batch_size": 8}
        place = {"nodes": nodes, "gpus_per_node": gpus_per_node, "world_size": nodes * gpus_per_node}
        speeds = {"train/samples_per_second": 20.0, "train/steps_per_second": steps_per_second}
        make_run(name, CUSTOM | place | {"config": config, "settings": settings}, speeds, **files)

    return make


def test_K12_bandwidth_of_another_world_is_not_shown(run, filled_by_column):
    run("r1", nodes=2, **{"nccl.log": FABRIC.replace("Rank  1", "Rank  0")})
    assert filled_by_column(ROOT / "custom_model", "15")["2 nodes"]["AllReduce BW (GB/s)"] == "a world of 1, not 2"


def test_weak_scaling_efficiency_is_baseline_over_current_step_time(run, filled_by_column):
    run("r1", gpus_per_node=2, config="constant")
    run("r2", gpus_per_node=4, config="constant", layers=8, steps_per_second=1.0)
    run("r3", gpus_per_node=2, config="published", steps_per_second=9.0)
    filled = filled_by_column(ROOT / "custom_model", "16")["Constant work / 4 GPUs"]
    assert filled["Efficiency (%)"] == "80.0"
    assert [filled[name] for name in ("Num Layers", "Per-GPU Batch", "Total Params (M)")] == ["8", "8", "254.5"]
    assert filled["FLOPs per GPU per Step (TFLOP)"] == "6.38"
