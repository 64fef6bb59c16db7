"""The time of a step from counted work: what must grow with what, and a fit that finds known constants."""

from typing import Any

import numpy as np
import pytest

from tools.errors import InputError
from tools.plan import constants
from tools.plan.constants import FORMULAS, Term
from tools.plan.gpus import GPUS
from tools.plan.timing import StepTime, step_time, work_of
from tools.plan.workload import Strategy, Workload
from workshop.measure import offload_lower_bound

STEP: dict[str, Any] = {
    "operations": {
        "blocks": {
            "matrix product": {"launches": 300, "flops": 10**13, "bytes": 10**10},
            "other": {"launches": 1000, "flops": 0, "bytes": 2 * 10**10},
        },
        "outside": {"other": {"launches": 100, "flops": 0, "bytes": 10**10}},
    },
    "parameters": 10**9,
    "parameter_tensors": 300,
    "parameter_modules": 150,
    "blocks": 24,
}
H200 = GPUS["h200"]
STARTS = {name: term.start for name, term in FORMULAS["step_time_s"].items()}


def work(method: str = "none", world_size: int = 1, accumulation: int = 1, **more: Any) -> dict[str, float]:
    gpu = more.pop("gpu", H200)
    config, network = more.pop("config", {}), more.pop("network", {})
    shape = {"batch_size": 4, "max_length": 512, "precision": "bf16"} | more
    strategy = Strategy(method, world_size, accumulation, True, config)
    return work_of(Workload(shape, strategy, **network), STEP, gpu)


def test_compiled_blocks_are_not_launched_operation_by_operation_and_float8_has_its_rate() -> None:
    usual, plain, float8 = work(), work(compile=True), work(compile=True, float8="tensorwise")
    assert (plain["launches"], plain["compiled_blocks"]) == (100, 24)
    assert plain["other_bytes"] + plain["compiled_bytes"] == pytest.approx(usual["other_bytes"])
    assert float8["half_products"] == 0
    assert float8["float8_products"] == pytest.approx(plain["half_products"] / 2, rel=0.01)
    assert float8["float8_casts"] == pytest.approx(plain["product_bytes"])
    assert plain["float8_products"] == plain["float8_casts"] == 0


def test_network_between_nodes_takes_the_place_of_nvlink() -> None:
    inside, between = work("ddp", 4), work("ddp", 4, network={"nodes": 4, "fabric_gb_per_s": 10})
    assert inside["fabric"] == between["link"] == 0
    assert between["fabric"] == pytest.approx(2 * 3 / 4 * 4e9 / 10e9)  # all-reduce of fp32 gradients
    assert inside["link"] == pytest.approx(between["fabric"] * 10 / 450)


def test_gradients_that_deepspeed_all_reduces_are_not_counted_as_scattered() -> None:
    paper = {"use_multi_rank_bucket_allreduce": False}
    for method, default, textbook in (("zero1", 3, 2), ("zero2", 9, 5)):
        for zero, parts in (({}, default), (paper, textbook)):
            sent = work(method, 2, 4, config={"zero_optimization": zero})["link"] * 450e9
            assert sent == pytest.approx(parts / 2 * 2e9), (method, zero)


def test_slower_gpu_makes_no_launch_slower_and_the_longer_of_gpu_and_host_decides() -> None:
    small = step_time(work(), STARTS)
    assert small.decided_by == "host"
    assert small.host < small.total < small.host + small.gpu + small.gaps
    assert StepTime(1, 0.1, 0, 0, 0, 1).decided_by == "gpu"
    slow = work(gpu=GPUS["a100-80gb"])
    assert slow["half_products"] / work()["half_products"] == pytest.approx(989 / 312)
    assert slow["launches"] == work()["launches"]
    with pytest.raises(InputError, match="has no bf16; expected fp16, fp32"):
        work(gpu=GPUS["v100-32gb"])


def test_fit_finds_constants_despite_an_outlier_and_keeps_the_start_of_what_nothing_says() -> None:
    terms = {name: Term("", start, 0.7) for name, start in (("a", 2), ("b", 2), ("unseen", 5))}
    work = {"a": np.arange(1.0, 21), "b": np.arange(20.0, 0, -1)}
    measured = 3 * work["a"] + 1 * work["b"]
    measured[7] *= 4  # a busy host
    found = constants.fit(lambda now: now["a"] * work["a"] + now["b"] * work["b"], measured, terms)
    assert found["a"] == pytest.approx(3, rel=0.03)
    assert found["b"] == pytest.approx(1, rel=0.06)
    assert found["unseen"] == pytest.approx(5)


@pytest.mark.parametrize("accumulation", [1, 4])
@pytest.mark.parametrize(
    "zero",
    [{"stage": 2}, {"stage": 3}, {"stage": 3, "ratio": 0.7}, {"stage": 3, "offload_param": {"device": "cpu"}}],
    ids=str,
)
def test_offload_moves_the_bytes_that_the_floor_counts(zero: dict[str, Any], accumulation: int) -> None:
    optimizer = {"device": "cpu", "pin_memory": True} | {name: zero[name] for name in ("ratio",) if name in zero}
    config = {"zero_optimization": {**zero, "offload_optimizer": optimizer}}
    ours = work(f"zero{zero['stage']}", 2, accumulation, config=config)
    settings = {"fp16": False, "bf16": True, "grad_acc": accumulation, "batch_size": 4, "max_length": 512}
    sizes = {"parameters": STEP["parameters"], "layers": 24, "hidden_size": 1024, "embedding_parameters": 0}
    floor = offload_lower_bound.work_of({"config": "", "settings": settings, "model": sizes, "world_size": 2}, config)
    bytes_per_s = H200.host_gb_per_s * 1e9
    everything = floor["to the CPU"] + floor["to the GPU"] + floor["to the GPU, pageable"]
    assert ours["pcie"] * bytes_per_s == pytest.approx(everything)
    assert ours["unpinned"] * bytes_per_s == pytest.approx(floor["to the GPU, pageable"])
