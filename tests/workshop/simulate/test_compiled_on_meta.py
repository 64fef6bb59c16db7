"""What compiled blocks keep, against what the H200s measured and against what can be counted by hand."""

from typing import Any

import pytest

from workshop.simulate.step_on_meta import StepShape, simulate

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
