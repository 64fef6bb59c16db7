"""A simulated step with frozen weights: what LoRA and QLoRA compute and keep."""

import pytest
import torch

from workshop.simulate.step_on_meta import StepShape, simulate

WEIGHTS, ADAPTERS = 559_214_592, 24 * 8 * (1024 + 3072 + 2 * 1024 + 2 * (1024 + 4096))
LINEAR = 24 * 12 * 1024 * 1024  # of BLOOM-560m's blocks, without biases


def step(four_bits: bool) -> dict:
    shape = StepShape("bloom-560m", 2, 512, precision="bf16", adapter_rank=8, four_bits=four_bits)
    return simulate(shape)


def test_frozen_weights_have_neither_gradients_nor_their_products() -> None:
    found = step(four_bits=False)
    assert found["trained"]["parameters"] == ADAPTERS and found["parameters"] == WEIGHTS + ADAPTERS
    assert found["parts"][-1]["gradient_bytes"] == 4 * ADAPTERS  # fp32, as the adapters under autocast
    assert found["frozen"] == {"bytes": 2 * WEIGHTS, "block_bytes": 2 * 12_596_224, "scale_bytes": 0}
    # 4 per frozen parameter and 6 per trained one; below the first adapter, of the first block's queries, keys and
    # values, no input has a gradient.
    flops = 4 * WEIGHTS + 6 * ADAPTERS - 2 * 3 * 1024 * 1024 + 12 * 24 * 1024 * 512
    counted = sum(place["matrix product"]["flops"] for place in found["operations"].values())
    assert counted == pytest.approx(flops * 2 * 512, rel=0.001)


def test_four_bits_take_what_bitsandbytes_takes_and_are_whole_within_a_product_only() -> None:
    from bitsandbytes.functional import quantize_4bit

    packed, state = quantize_4bit(torch.zeros(1024, 1024), quant_type="nf4", compress_statistics=True)
    scale_bytes = state.absmax.nbytes + state.state2.absmax.nbytes
    plain, small = step(four_bits=False), step(four_bits=True)
    assert small["frozen"]["bytes"] == 2 * (WEIGHTS - LINEAR) + packed.nbytes * LINEAR // 1024**2
    assert small["frozen"]["scale_bytes"] == scale_bytes * LINEAR // 1024**2
    assert small["trained"] == plain["trained"] and small["parameters"] == plain["parameters"]
    kept = [max(part["end_bytes"] for part in one["parts"]) for one in (plain, small)]
    assert kept[1] - kept[0] < 2 * LINEAR / 2
