"""A simulated step with frozen weights: what LoRA and QLoRA compute and keep."""

import json
from pathlib import Path

import pytest
import torch
from bitsandbytes.functional import quantize_4bit

from tests.launching import REPO
from tools.logs.mfu import utilisation
from tools.logs.run import Run
from workshop.run_folder.schema import RunRecord, typed
from workshop.simulate.step_on_meta import StepShape, simulate

WEIGHTS, HEAD, ADAPTERS = 559_214_592, 250_880 * 1024, 24 * 8 * (1024 + 3072 + 2 * 1024 + 2 * (1024 + 4096))
LINEAR = 24 * 12 * 1024 * 1024  # of BLOOM-560m's blocks, without biases
SHAPE = {"model_name": "bloom-560m", "batch_size": 2, "max_length": 512, "precision": "bf16", "adapter_rank": 8}


def test_only_adapters_have_gradients_and_mfu_counts_the_products_that_are_computed() -> None:
    """Counted as if all were trained, MFU was half as much again as the GPU did."""
    step = simulate(StepShape(**SHAPE))
    assert step["trained"]["parameters"] == ADAPTERS and step["frozen"]["bytes"] == 2 * WEIGHTS
    assert step["parts"][-1]["gradient_bytes"] == 4 * ADAPTERS  # fp32, as the adapters under autocast
    model = {"parameters": WEIGHTS + ADAPTERS, "trained_parameters": ADAPTERS, "embedding_parameters": HEAD}
    record = {"gpu_names": ["NVIDIA H200"], "precision": "bf16", "model": model | {"layers": 24, "hidden_size": 1024}}
    run = Run(Path("run"), record=typed(record | {"world_size": 1}, RunRecord))
    speeds = {"train/tokens_per_second": 1024, "train/samples_per_second": 2, "train/logit_positions_per_second": 0}
    found = utilisation(run, speeds.get)
    by_convention, without_head = (found[name] / 100 * 989e12 for name in ("mfu_by_convention_percent", "mfu_percent"))
    counted = sum(place["matrix product"]["flops"] for place in step["operations"].values())
    assert by_convention == pytest.approx(counted, rel=0.001)
    assert by_convention - without_head == pytest.approx(4 * HEAD * 1024)


@pytest.mark.parametrize("compiled", [{}, {"fast": True, "attention": "flex", "loss": "chunked", "compile": True}])
def test_four_bits_take_what_bitsandbytes_takes(compiled: dict) -> None:
    packed, state = quantize_4bit(torch.zeros(1024, 1024), quant_type="nf4", compress_statistics=True)
    lora, qlora = (simulate(StepShape(**SHAPE, **compiled, loss_chunk=64, four_bits=bits)) for bits in (False, True))
    frozen = qlora["frozen"]
    assert frozen["bytes"] == 2 * (WEIGHTS - LINEAR) + packed.nbytes * LINEAR // 1024**2
    assert frozen["scale_bytes"] == (state.absmax.nbytes + state.state2.absmax.nbytes) * LINEAR // 1024**2
    kept = [max(part["end_bytes"] for part in step["parts"]) for step in (lora, qlora)]
    assert kept[1] - kept[0] < 2 * LINEAR  # no whole weight stays for the backward pass


def test_compiled_blocks_keep_what_was_measured() -> None:
    """It had traced the first block, whose input needs no gradient where the embedding is frozen: 7 % too little."""
    rung = {"fast": True, "attention": "flex", "loss": "chunked", "loss_chunk": 4096, "stream": "bf16", "packing": True}
    shape = {"model_name": "llama-3.2-1b", "batch_size": 64, "max_length": 512, "labelled": 1098, "compile": True}
    step = simulate(StepShape(**SHAPE | rung | shape))
    states = step["frozen"]["bytes"] + 12 * step["trained"]["parameters"]
    summary = json.loads(
        (REPO / "logs/reference/h200x1-2026-11-25a-lora/lora/20261125-024318-p5255/summary.json").read_text()
    )
    expected = (states + max(part["peak_bytes"] for part in step["parts"])) / 2**20
    assert expected == pytest.approx(summary["peak_mem_alloc_mib"], rel=0.03)
