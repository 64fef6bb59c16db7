"""A simulated step with frozen weights: what LoRA and QLoRA compute and keep."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from tools.logs.mfu import utilisation
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


def test_mfu_counts_what_a_step_with_adapters_computes() -> None:
    """Counted as if all were trained, it was half as much again as the GPU did."""
    model = {"parameters": WEIGHTS + ADAPTERS, "trained_parameters": ADAPTERS, "layers": 24, "hidden_size": 1024}
    model["embedding_parameters"] = 250_880 * 1024
    record = {"gpu_names": ["NVIDIA H200"], "precision": "bf16", "model": model}
    speeds = dict.fromkeys(("train/tokens_per_second", "train/logit_positions_per_second"), 1024)
    run = SimpleNamespace(record=record, facts={"world_size": 1})
    found = utilisation(run, (speeds | {"train/samples_per_second": 2}).get)
    flops = found["mfu_percent"] / 100 * 989e12  # of a step per second
    counted = [place["matrix product"]["flops"] for place in step(four_bits=False)["operations"].values()]
    assert flops == pytest.approx(sum(counted), rel=0.001)
    half = utilisation(run, (speeds | {"train/samples_per_second": 2, "train/logit_positions_per_second": 512}).get)
    assert found["mfu_percent"] - half["mfu_percent"] == pytest.approx(4 * 250_880 * 1024 * 512 / 989e10)


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


def test_compiled_blocks_with_four_bits_take_less() -> None:
    """Their copies, which are traced, computed with a bias of the model that they are copies of."""
    fast = {"precision": "bf16", "fast": True, "attention": "flex", "loss": "chunked", "loss_chunk": 64}
    shape = StepShape("tiny", 2, 64, **fast, compile=True, adapter_rank=8, four_bits=True)
    compiled, plain = simulate(shape), simulate(replace(shape, compile=False))
    kept = [max(part["end_bytes"] for part in one["parts"]) for one in (compiled, plain)]
    assert 0 < kept[0] < kept[1]
