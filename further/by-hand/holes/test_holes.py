"""Tests of the holes in this folder: `python -m pytest further/by-hand/holes`.

Each hole runs on gloo ranks, processes that count what they send. Gradients and norms are compared, not losses: a
factor in a gradient hardly changes a loss. If ranks wait for each other, gloo gives up after two minutes.
"""

import time
from collections.abc import Callable
from datetime import timedelta
from importlib import import_module
from multiprocessing import set_forkserver_preload
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from workshop.measure.collectives import CollectiveCounter
from workshop.private_names import tree_map

Ranks = list[list[Tensor]]  # for each rank its tensors
MAX_NORM = 0.5  # not 1, which does not show if it is used
LATE_S = 0.5  # the last rank begins so much later
set_forkserver_preload(["torch._dynamo", "workshop.measure.collectives"])  # imported once, not by every rank


def on_rank(rank: int, name: str, call: Callable[..., Any], inputs: Ranks, folder: Path) -> None:
    """Call the function on one rank; save what it returns or changes, and what the rank sends."""
    meeting, limit = f"file://{folder}/meeting", timedelta(minutes=2)
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=len(inputs), timeout=limit)
    function = getattr(import_module(name), name)
    dist.barrier()
    time.sleep(LATE_S if rank == len(inputs) - 1 else 0)  # who has not waited for it has a wrong result by now
    with CollectiveCounter() as counter:
        found = tree_map(as_it_is, call(function, *inputs[rank]))
    calls = [(call.name, call.message_bytes // 4, call.peer) for call in counter.calls.elements()]
    torch.save((found, calls), folder / str(rank))
    dist.barrier()  # the others may not have received everything yet
    dist.destroy_process_group()


def as_it_is(value: Any) -> Any:
    """Return a copy of a tensor at this moment, plain also if a functional collective returned it; or a text."""
    return value.detach().clone() if isinstance(value, Tensor) else str(value)


def check(name: str, call: Callable[..., Any], inputs: Ranks, right: Ranks, most: int, folder: Path) -> None:
    """Fails with what is wrong. right: what each rank should find; most: how many numbers it should send at most."""
    if "raise NotImplementedError" in (Path(__file__).parent / f"{name}.py").read_text():
        pytest.skip("not filled in yet")
    try:
        mp.start_processes(on_rank, (name, call, inputs, folder), nprocs=len(inputs), start_method="forkserver")
    except mp.ProcessRaisedException as error:
        pytest.fail(str(error).strip(), pytrace=False)
    for rank, expected in enumerate(right):
        found, calls = torch.load(folder / str(rank))
        # An all-reduce is a reduce-scatter and an all-gather; what is received is counted where it is sent.
        sent = sum({"all-reduce": 2, "receive": 0}.get(kind, 1) * numbers for kind, numbers, _ in calls)
        wrong = (f"sends {sent} numbers; {most} are enough" if sent > most else "") if sent else "sends nothing"
        wrong = wrong or next(filter(None, map(difference, found, expected)), "")
        ring = {("send", (rank + 1) % len(right)), ("receive", (rank - 1) % len(right))}
        if name == "ring_all_reduce" and (others := {(kind, peer) for kind, _, peer in calls} - ring):
            found = ", ".join(
                kind if peer is None else f"{kind} (rank {peer})" for kind, peer in sorted(others, key=str)
            )
            wrong = f"calls {found}; expected send to the next rank and receive from the one before alone"
        if wrong:
            pytest.fail(f"{name} on rank {rank} {wrong}", pytrace=False)


def difference(found: Any, right: Tensor) -> str:
    if not isinstance(found, Tensor) or found.shape != right.shape:
        form = f"has the shape {list(found.shape)}" if isinstance(found, Tensor) else f"returns or leaves {found}"
        return f"{form}; expected a tensor of the shape {list(right.shape)}"
    if torch.allclose(found, right, rtol=1e-4, atol=1e-5):
        return ""
    factor = ((found * right).sum() / right.square().sum()).item()
    if torch.allclose(found, factor * right, rtol=1e-4, atol=1e-5):
        return f"finds {factor:.3g} times the right one"
    return f"differs by up to {(found - right).abs().max():.2g} from the right one; did it wait for what it sent?"


def sums(of_ranks: Ranks) -> Ranks:
    return [[sum(tensors) for tensors in zip(*of_ranks, strict=True)]] * len(of_ranks)


def layer_with(weights: Tensor) -> nn.Module:
    layer = nn.Linear(4, 3)
    vector_to_parameters(weights.clone(), layer.parameters())
    return layer


def loss_sum(layer: nn.Module, batch: list[Tensor]) -> Tensor:
    return layer(batch[0]).square().sum()


def gradient(layer: nn.Module) -> Tensor:
    return parameters_to_vector([parameter.grad for parameter in layer.parameters()])


def gradient_for(weights: Tensor, *examples: Tensor) -> Tensor:
    loss_sum(layer := layer_with(weights), [torch.cat(examples)]).backward()
    return gradient(layer)


def call_gradient_sum(function: Callable[..., Any], *gradients: Tensor) -> list[Tensor]:
    parameters = [nn.Parameter(torch.zeros_like(gradient)) for gradient in gradients]
    for parameter, own in zip(parameters, gradients, strict=True):
        parameter.grad = own
    function(parameters)
    return [parameter.grad for parameter in parameters]


def test_gradient_sum(tmp_path: Path) -> None:
    inputs = [[torch.randn(3, 4), torch.randn(5)] for _ in range(2)]
    check("gradient_sum", call_gradient_sum, inputs, sums(inputs), 2 * 17, tmp_path)


def call_accumulation(function: Callable[..., Any], weights: Tensor, *micro_batches: Tensor) -> list[Tensor]:
    function(layer := layer_with(weights), [[examples] for examples in micro_batches], loss_sum)
    return [gradient(layer)]


def test_accumulation(tmp_path: Path) -> None:
    weights = torch.randn(15)
    inputs = [[weights, *(torch.randn(examples, 4) for examples in (2, 3, 4))] for _ in range(2)]
    right = sums([[gradient_for(*tensors)] for tensors in inputs])
    check("accumulation", call_accumulation, inputs, right, 2 * 15, tmp_path)


def call_sharded_block(function: Callable[..., Any], shard: Tensor, examples: Tensor) -> list[Tensor]:
    return [function(layer_with(torch.zeros(15)), shard, examples)]


def test_sharded_block(tmp_path: Path) -> None:
    weights, padding = torch.randn(15), torch.zeros(1)
    inputs = [[shard, torch.randn(6, 4)] for shard in torch.cat([weights, padding]).chunk(2)]
    whole = sum(gradient_for(weights, examples) for _, examples in inputs)
    right = [[shard] for shard in torch.cat([whole, padding]).chunk(2)]
    check("sharded_block", call_sharded_block, inputs, right, 2 * 16, tmp_path)


def call_clip_shards(function: Callable[..., Any], *gradients: Tensor) -> list[Tensor]:
    small = [gradient / 1000 for gradient in gradients]
    return [function(list(gradients), MAX_NORM), *gradients, function(small, MAX_NORM), *small]


def test_clip_shards(tmp_path: Path) -> None:
    inputs = [[torch.randn(4), torch.randn(3, 2) + 1], [torch.randn(5) + 1]]
    norm = torch.cat([shard.flatten() for shards in inputs for shard in shards]).norm()
    right = [
        [norm, *(one * MAX_NORM / norm for one in own), norm / 1000, *(one / 1000 for one in own)] for own in inputs
    ]
    check("clip_shards", call_clip_shards, inputs, right, 2 * 2, tmp_path)


def call_ring_all_reduce(function: Callable[..., Any], tensor: Tensor) -> list[Tensor]:
    function(tensor)
    return [tensor]


def test_ring_all_reduce(tmp_path: Path) -> None:
    inputs = [[torch.randn(10)] for _ in range(3)]  # of two ranks, the next one is also the one before
    check("ring_all_reduce", call_ring_all_reduce, inputs, sums(inputs), 2 * 2 * 4, tmp_path)
