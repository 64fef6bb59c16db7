"""Tables 10 to 12: each row finds its own runs, and factors compare with one GPU of the same configuration."""

from functools import partial

import pytest

from tools.tables.repository import ROOT

FSDP = ROOT / "fsdp"


@pytest.fixture
def filled(filled):
    return partial(filled, FSDP)


@pytest.fixture
def fsdp_run(make_run):
    def make(name, config, nodes, gpus, speed=10.0, runtime=100.0, batch=(1, 4), files=None, **record):
        settings = {"batch_size": batch[0], "grad_acc": batch[1], "fp16": True} | record.pop("settings", {})
        place = {"exercise": "fsdp", "experiment": "fsdp", "config": config, "nodes": nodes, "gpus_per_node": gpus}
        place |= {"settings": settings, "precision": "fp16"}
        place |= {"sharding": {"method": "ddp" if config == "ddp" else "fsdp2"}}
        summary = {"train/samples_per_second": speed, "train/steps_per_second": speed / 16, "train_runtime_s": runtime}
        summary |= {"peak_mem_alloc_mib": 1000.0, "train_loss": 1.5, "avg_gpu_util_%": 90.0}
        return make_run(name, place | {"world_size": nodes * gpus} | record, summary, **(files or {}))

    return make


def test_scale_factors_are_against_one_gpu(fsdp_run, filled) -> None:
    fsdp_run("r1", "full_shard", 1, 1, speed=10.0, runtime=400.0)
    fsdp_run("r2", "full_shard", 1, 4, speed=30.0, runtime=160.0)
    fsdp_run("r3", "shard_grad_op", 1, 1, speed=99.0)
    fsdp_run("r4", "full_shard", 4, 1, speed=15.0, runtime=800.0)
    assert filled("11")["1 GPU"] == ["1", "10.00", "1.00", "400.0", "1.00", "1.5000", "1.05"]
    assert filled("11")["4 GPUs"] == ["4", "30.00", "3.00", "160.0", "2.50", "1.5000", "1.05"]
    assert filled("12")["1 node"][2] == "1.00"
    assert filled("12")["4 nodes"] == ["4", "15.00", "1.50", "800.0", "0.50", "1.5000", "1.05"]


def test_runtimes_of_unequal_work_are_no_factor(fsdp_run, filled) -> None:
    header, line = "step,step_time_s,tokens,real_tokens,loss,epoch\n", "1,0.5,{},10,9.0,0.1\n"
    fsdp_run("r1", "full_shard", 1, 1, files={"steps.csv": header + line.format(2048) * 8})
    fsdp_run("r2", "full_shard", 1, 2, files={"steps.csv": header + line.format(4096) * 4})
    fsdp_run("r3", "full_shard", 1, 4, files={"steps.csv": header + line.format(8192) * 8})
    assert filled("11")["2 GPUs"][4] == "1.00"
    assert filled("11")["4 GPUs"][4] == "unequal work"
