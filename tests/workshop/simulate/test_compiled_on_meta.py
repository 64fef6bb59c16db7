"""What compiled blocks keep, against what the H200s measured and against what can be counted by hand."""

import copy
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import nn

from workshop.simulate.compiled_on_meta import compile_blocks
from workshop.simulate.step_on_meta import StepShape, simulate
from workshop.simulate.tensor_bytes import Tracker

MIB = 2**20
TOP = {
    **{"max_length": 512, "precision": "bf16", "fast": True, "attention": "flex", "packing": True},
    **{"loss": "chunked", "loss_chunk": 8192, "stream": "bf16", "compile": True},
}


def peak_mib(step: dict[str, Any], parameters: int = 0) -> float:
    """The peak of the simulated step, with an fp32 optimizer and fp32 weights beside it."""
    return (max(part["peak_with_gradients_bytes"] for part in step["parts"]) + 12 * parameters) / MIB


def test_compiled_gpt2_takes_what_the_h200_measured_within_one_percent() -> None:
    # logs/reference/h200x4-2026-11-22e/speed-ladder/20261122-142929-p2026, peak_mem_alloc_mib; uncompiled 27,000
    step = simulate(StepShape("gpt2", batch_size=64, labelled=1097, **TOP | {"attention": "sdpa"}))
    assert peak_mib(step, step["parameters"]) == pytest.approx(12_434, rel=0.01)


def test_float8_without_torchao_takes_what_the_h200_measured_within_one_percent() -> None:
    # logs/reference/h200x4-2026-11-22e/speed-ladder/20261122-143209-p4878, whose epochs ended with 29 rows, uncompiled
    shape = StepShape("llama-3.2-1b", batch_size=32, labelled=548, float8="tensorwise", short_rows=29, **TOP)
    step = simulate(shape)
    assert peak_mib(step, step["parameters"]) + 65 == pytest.approx(44_036, rel=0.01)


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
    (found,) = compile_blocks([block], (hidden,), {}, nullcontext, Tracker())
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


def test_ddp_cuts_a_compiled_block_and_each_part_keeps_what_another_one_made() -> None:
    block = Gated(256).to("meta")  # three weights of 1 MiB each
    hidden = torch.empty(64, 256, device="meta", requires_grad=True)
    (whole,) = compile_blocks([copy.deepcopy(block)], (hidden,), {}, nullcontext, Tracker())
    cut = compile_blocks([block], (hidden,), {}, nullcontext, Tracker(), ddp_bucket_bytes=1 << 20)
    # Each keeps its weight and what it was given: the input; input and silu, which the whole block computes again; the
    # product. Of its own: the gate; what is multiplied with its silu; nothing.
    kept = [(len(part.kept), len(part.kept_inputs)) for part in cut]
    assert (kept, len(whole.kept)) == ([(1, 2), (1, 3), (0, 2)], 3)
