"""The counter sees collectives of every way to ask for them, once, with their sizes."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.distributed import _functional_collectives as functional

from workshop.measure.collectives import CollectiveCounter
from workshop.run_folder.collectives import Collective, read, write


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
        dist.all_gather_into_tensor(out, four)
        dist.reduce_scatter_tensor(out, four)
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
