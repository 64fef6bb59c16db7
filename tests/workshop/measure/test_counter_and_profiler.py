"""The counter sees each collective once, with its size; the profile says what was done in the steps asked for."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from torch.distributed import _functional_collectives as functional

from tools.commands.profile import profile
from tools.logs.run import Run
from workshop.measure.collectives import CollectiveCounter
from workshop.measure.profiling import Profiler
from workshop.record.collectives import Collective, read, write


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[None]:
    """A process group of this process only."""
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_each_call_counts_once_with_its_kind_and_size(alone: None, tmp_path: Path) -> None:
    four, out = torch.ones(4), torch.empty(4)
    with CollectiveCounter() as counter:
        dist.all_reduce(four)
        getattr(dist, "all_gather_single", dist.all_gather_into_tensor)(out, four)  # the first: PyTorch 2.14's name
        getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)(out, four)
        dist.all_gather([out], four)
        dist.broadcast(four.bfloat16(), src=0)
        dist.reduce(four, dst=0)
        functional.wait_tensor(functional.all_reduce(four, "sum", dist.group.WORLD))
        dist.barrier()
        four.add(1)
    expected = {"all-reduce": 2, "all-gather": 2, "reduce-scatter": 1, "reduce": 1}
    calls = {Collective(name, (0,), 16, dtype="float32"): number for name, number in expected.items()}
    assert counter.calls == calls | {Collective("broadcast", (0,), 8, dtype="bfloat16"): 1}
    write(tmp_path / "collectives.csv", 3, [counter.calls])
    lines = (tmp_path / "collectives.csv").read_text().splitlines()
    assert lines[0] == "step,rank,collective,group,peer,dtype,bytes,calls"
    assert "3,0,broadcast,0,,bfloat16,8,1" in lines
    assert len(lines) == 6
    assert {one.name: one.calls for one in read(tmp_path / "collectives.csv")} == expected | {"broadcast": 1}


def profiled_four_steps(asked: str, folder: Path) -> None:
    profiler = Profiler(SimpleNamespace(profile=asked, run_dir=folder))
    state = SimpleNamespace(global_step=0, is_world_process_zero=True)
    profiler.on_train_begin(None, state, None)
    for step in range(1, 5):
        torch.ones(8, 8) @ torch.ones(8, 8)
        state.global_step = step
        profiler.on_step_end(None, state, None)
    profiler.on_train_end(None, state, None)


def test_profile_of_steps_that_the_training_does_not_make_is_missed(tmp_path: Path, capsys) -> None:
    profiled_four_steps("9:9", tmp_path)
    assert capsys.readouterr().out == "warning: PROFILE=9:9: nothing is profiled; the last step was 4\n"
    profiled_four_steps("", tmp_path)
    assert capsys.readouterr().out == "" and not list(tmp_path.iterdir())


@pytest.mark.parametrize(("asked", "first", "last"), [("2:3", 2, 3), ("1:9", 1, 4)])
def test_profile_is_about_the_steps_asked_for(asked: str, first: int, last: int, tmp_path: Path) -> None:
    """Of steps that the training does not make there are no times to divide by."""
    profiled_four_steps(asked, tmp_path)
    products = last - first + 1
    (line,) = (line for line in (tmp_path / "profile.txt").read_text().splitlines() if "aten::mm" in line)
    assert line.split()[-1] == str(products)
    trace = json.loads(gzip.decompress((tmp_path / "profile_trace.json.gz").read_bytes()))
    assert sum(event.get("name") == "aten::mm" for event in trace["traceEvents"]) == products
    # The tools read what PyTorch writes; without a GPU one kernel is added.
    kernel = {"ph": "X", "cat": "kernel", "name": "gemm", "ts": trace["traceEvents"][0].get("ts", 0), "dur": 5}
    with gzip.open(tmp_path / "profile_trace.json.gz", "wt") as file:
        json.dump({"traceEvents": [*trace["traceEvents"], kernel]}, file)
    cells = profile(Run(tmp_path))
    wall_ms = float((tmp_path / "profile.txt").read_text().split(" ms")[0].split()[-1])
    assert cells["Step (ms), with it"] == f"{wall_ms / products:,.1f}" and cells["Median kernel (us)"] == "5.0"
