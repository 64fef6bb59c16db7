"""What compiled blocks keep, against what the H200s measured and against what can be counted by hand."""

import copy
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.compilers import nop
from torch._inductor.compile_fx import partition_fn
from torch._inductor.decomposition import select_decomp_table
from torch.nn.parallel import DistributedDataParallel

from workshop.kernels.fast_models.float8 import RECIPES, use_float8
from workshop.simulate.compiled_on_meta import CompiledBlock, compile_block, compile_block_under_ddp, stand_in
from workshop.simulate.float8_on_meta import use_float8_on_meta
from workshop.simulate.step_on_meta import StepShape, simulate
from workshop.simulate.tensor_bytes import Tracker, allocated_bytes

MIB = 2**20
TOP = {
    **{"max_length": 512, "precision": "bf16", "fast": True, "attention": "flex", "packing": True},
    **{"loss": "chunked", "loss_chunk": 8192, "stream": "bf16", "compile": True},
}


def peak_mib(step: dict[str, Any], parameters: int = 0) -> float:
    """The peak of the simulated step, with an fp32 optimizer and fp32 weights beside it."""
    return (max(part["peak_with_gradients_bytes"] for part in step["parts"]) + 12 * parameters) / MIB


def test_compiled_gpt2_takes_what_the_h200_measured_within_one_percent() -> None:
    # logs/reference/h200x4-host-f/speed-ladder/20261122-142929-p2026, peak_mem_alloc_mib; uncompiled it would be 27,000
    step = simulate(StepShape("gpt2", batch_size=64, labelled=1097, **TOP | {"attention": "sdpa"}))
    assert peak_mib(step, step["parameters"]) == pytest.approx(12_434, rel=0.01)


def test_float8_without_torchao_takes_what_the_h200_measured_within_one_percent() -> None:
    # logs/reference/h200x4-host-f/speed-ladder/20261122-143209-p4878, whose epochs ended with 29 rows, uncompiled
    shape = StepShape("llama-3.2-1b", batch_size=32, labelled=548, float8="tensorwise", short_rows=29, **TOP)
    step = simulate(shape)
    assert peak_mib(step, step["parameters"]) + 65 == pytest.approx(44_036, rel=0.01)


@pytest.mark.parametrize("recipe", RECIPES)
def test_float8_stands_in_for_torchao_s_layers(recipe: str) -> None:
    pytest.importorskip("torchao", reason="requirements-gpu.txt")
    found = []
    for use in (use_float8, use_float8_on_meta):
        blocks = nn.ModuleList([Gated(64).to("meta", torch.bfloat16)])
        use(blocks, recipe)
        hidden = torch.empty(32, 64, device="meta", dtype=torch.bfloat16, requires_grad=True)
        found.append(compile_block(blocks[0], (hidden,), {}, nullcontext).graphs[0].graph)
    theirs, ours = found
    small = 1024  # scales
    assert sorted(size for size in ours.kept if size > small) == sorted(size for size in theirs.kept if size > small)
    assert ours.forward_peak == pytest.approx(theirs.forward_peak, abs=10 * small)
    assert ours.backward_peak == pytest.approx(theirs.backward_peak, abs=10 * small)


class Gated(nn.Module):
    def __init__(self, size: int = 8) -> None:
        super().__init__()
        self.up, self.gate = nn.Linear(size, 4 * size, False), nn.Linear(size, 4 * size, False)
        self.down = nn.Linear(4 * size, size, False)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden + self.down(nn.functional.silu(self.gate(hidden)) * self.up(hidden))


def test_block_keeps_inputs_of_products_and_recomputes_what_lies_between() -> None:
    block = Gated().to("meta")
    hidden = torch.empty(2, 16, 8, device="meta", requires_grad=True)
    compiled = compile_block(block, (hidden,), {}, nullcontext)
    found = compiled.graphs[0].graph
    assert compiled.alone
    wide = 2 * 16 * 32 * 4
    # gate, up and their product, which the last matrix product reads; not the sigmoid. The input is the caller's.
    assert sorted(found.kept) == [wide, wide, wide]
    assert 3 in found.kept_inputs  # after the three weights
    assert found.forward_peak == 3 * wide + 2 * 16 * 8 * 4
    assert found.results == ((hidden.shape, torch.float32),)


def test_last_micro_batch_runs_uncompiled_and_may_need_more_than_a_full_one() -> None:
    shape = {"model_name": "tiny", "batch_size": 8, "labelled": 16} | TOP | {"max_length": 128}
    full = simulate(StepShape(**shape))
    nearly = simulate(StepShape(**shape, short_rows=7))
    assert peak_mib(nearly) > peak_mib(full)
    assert nearly["operations"] == full["operations"]
    assert peak_mib(simulate(StepShape(**shape, short_rows=1))) == peak_mib(full)


def test_ddp_cuts_a_compiled_block_and_each_part_keeps_what_it_reads(tmp_path: Path) -> None:
    blocks = nn.ModuleList([Gated(256), Gated(256)])  # three weights of 1 MiB each
    hidden = torch.randn(64, 256, requires_grad=True)
    whole = compile_block(blocks[0], (hidden,), {}, nullcontext)
    cut = compile_block_under_ddp(blocks[0], (hidden,), {}, nullcontext, None, bucket_bytes=1 << 20)
    assert len(cut.graphs) == 3
    kept = {name: simulated_bytes(blocks, found) for name, found in (("whole", whole), ("cut", cut))}
    assert kept["cut"] > kept["whole"]
    assert kept == {"whole": bytes_between_passes(blocks), "cut": bytes_under_ddp(blocks, tmp_path / "cut")}
    with torch._dynamo.config.patch(optimize_ddp=False):  # fsdp/fsdp_configs/tuning/ddp_whole_blocks.json
        assert bytes_under_ddp(blocks, tmp_path / "whole") == kept["whole"]


def simulated_bytes(blocks: nn.ModuleList, compiled: CompiledBlock) -> int:
    """The bytes of tensors that a simulated forward pass leaves."""
    on_meta, tracker = copy.deepcopy(blocks).to("meta"), Tracker()
    stand_in(on_meta, compiled, tracker)
    hidden = torch.empty(64, 256, device="meta", requires_grad=True)
    for one in (hidden, *on_meta.parameters()):
        tracker.ignore(one)
    with tracker:
        tracker.begin("forward", "0")
        result = chained(on_meta, hidden)
        assert result.requires_grad
    return tracker.now_bytes


def bytes_under_ddp(blocks: nn.ModuleList, store: Path) -> int:
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=0, world_size=1)
    try:
        return bytes_between_passes(blocks, lambda model: DistributedDataParallel(model, bucket_cap_mb=1))
    finally:
        torch.distributed.destroy_process_group()


def bytes_between_passes(blocks: nn.ModuleList, wrap: Callable[[nn.Module], nn.Module] = lambda model: model) -> int:
    """The bytes that blocks compiled with Inductor's partitioner, without its kernels, keep between the passes."""
    torch.compiler.reset()
    backend = aot_autograd(
        fw_compiler=nop, bw_compiler=nop, partition_fn=partition_fn, decompositions=select_decomp_table()
    )
    chain = Chain(copy.deepcopy(blocks))
    for block in chain.blocks:
        block.forward = torch.compile(block.forward, backend=backend, dynamic=False)
    hidden = torch.randn(64, 256, requires_grad=True)
    result = wrap(chain)(hidden)
    tensors, nodes = [result], [result.grad_fn]
    while nodes:
        node = nodes.pop()
        tensors += [one for one in getattr(node, "saved_tensors", ()) if one is not None]
        nodes += [one for one, _ in node.next_functions if one is not None]
    given = {one.untyped_storage().data_ptr() for one in (hidden, *chain.parameters())}
    sizes = {one.untyped_storage().data_ptr(): allocated_bytes(one) for one in tensors}
    return sum(size for place, size in sizes.items() if place not in given)


class Chain(nn.Module):
    def __init__(self, blocks: nn.ModuleList) -> None:
        super().__init__()
        self.blocks = blocks

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return chained(self.blocks, hidden)


def chained(blocks: nn.ModuleList, hidden: torch.Tensor) -> torch.Tensor:
    for block in blocks:
        hidden = block(hidden)
    return hidden
