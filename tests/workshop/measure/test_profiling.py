"""The profile says what the GPU did in the steps asked for."""

import gzip
import json
from types import SimpleNamespace

import pytest
import torch

from workshop.measure.profiling import Profiler, covered_us, shares


def test_kernels_side_by_side_count_once() -> None:
    assert covered_us([(5, 7), (0, 4), (1, 2), (3, 6)]) == 7


def test_communication_behind_computation_is_told_from_waiting_for_it() -> None:
    text = shares([("gemm", (0, 50)), ("ncclDevKernel_AllGather", (40, 60)), ("gemm", (70, 80))], wall_us=100)
    figures = [line.split()[-1] for line in text.splitlines()]
    assert figures == ["60.0%", "20.0%", "10.0%", "30.0%"]


@pytest.mark.parametrize(("asked", "steps", "products"), [("2:3", 4, 2), ("1:9", 4, 4)])
def test_profile_is_about_the_steps_asked_for(asked: str, steps: int, products: int, tmp_path) -> None:
    profiler = Profiler(SimpleNamespace(profile=asked, run_dir=tmp_path))
    state = SimpleNamespace(global_step=0, is_world_process_zero=True)
    profiler.on_train_begin(None, state, None)
    for step in range(1, steps + 1):
        torch.ones(8, 8) @ torch.ones(8, 8)
        state.global_step = step
        profiler.on_step_end(None, state, None)
    profiler.on_train_end(None, state, None)
    (line,) = (line for line in (tmp_path / "profile.txt").read_text().splitlines() if "aten::mm" in line)
    assert line.split()[-1] == str(products)
    trace = json.loads(gzip.decompress((tmp_path / "profile_trace.json.gz").read_bytes()))
    assert sum(event.get("name") == "aten::mm" for event in trace["traceEvents"]) == products
