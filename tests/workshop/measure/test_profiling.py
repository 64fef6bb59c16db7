"""The profile says what the GPU did in the steps asked for."""

import gzip
import json
from types import SimpleNamespace

import pytest
import torch

from tools.commands.profile import read_trace
from tools.logs.run import Run
from workshop.measure.profiling import Profiler


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
    # The tools read what PyTorch writes; without a GPU one kernel is added.
    kernel = {"ph": "X", "cat": "kernel", "name": "gemm", "ts": trace["traceEvents"][0].get("ts", 0), "dur": 5}
    with gzip.open(tmp_path / "profile_trace.json.gz", "wt") as file:
        json.dump({"traceEvents": [*trace["traceEvents"], kernel]}, file)
    read = read_trace(Run(tmp_path, {}, None))
    assert (read.first, read.last) == tuple(map(int, asked.split(":"))) and read.wall_us > 0
    assert sum(one.name == "aten::mm" for one in read.operators) == products
