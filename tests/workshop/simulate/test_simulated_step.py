"""The simulated step against what the H200s measured (logs/reference), the formula of FLOPs, and bitsandbytes."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from bitsandbytes.functional import quantize_4bit

from tests.launching import REPO
from tools.logs.mfu import utilisation
from tools.logs.run import Run
from workshop.record.schema import RunRecord, typed
from workshop.simulate import step_on_meta
from workshop.simulate.step_on_meta import StepShape, build, cut, simulate
from workshop.training.models import blocks_of

WEIGHTS, HEAD, ADAPTERS = 559_214_592, 250_880 * 1024, 24 * 8 * (1024 + 3072 + 2 * 1024 + 2 * (1024 + 4096))
LINEAR = 24 * 12 * 1024 * 1024  # of BLOOM-560m's blocks, without biases
ADAPTED = {"model_name": "bloom-560m", "batch_size": 2, "max_length": 512, "precision": "bf16", "adapter_rank": 8}
TOP = {
    **{"max_length": 512, "precision": "bf16", "fast": True, "attention": "flex", "packing": True},
    **{"loss": "chunked", "loss_chunk": 8192, "stream": "bf16", "compile": True},
}


def peak_mib(step: dict[str, Any], states_bytes: int, peak: str = "peak_with_gradients_bytes") -> float:
    """The peak of the simulated step, with weights and an optimizer beside it."""
    return (max(part[peak] for part in step["parts"]) + states_bytes) / 2**20


def product_flops(step: dict[str, Any]) -> int:
    return sum(place["matrix product"]["flops"] for place in step["operations"].values())


def test_textbook_step_takes_what_the_h200_measured_and_has_the_flops_of_the_formula() -> None:
    textbook = simulate(StepShape("bloom-560m", batch_size=4, max_length=512))
    # fp32 weights, gradients and two moments beside it: logs/reference/h200x1/baseline, peak_mem_alloc_mib 19,597
    assert peak_mib(textbook, 16 * WEIGHTS, "peak_bytes") == pytest.approx(19_597, rel=0.005)
    # 6 x parameters + 12 x layers x hidden size x length per token; norms and biases multiply nothing
    formula = (6 * WEIGHTS + 12 * 24 * 1024 * 512) * 4 * 512
    assert product_flops(textbook) == pytest.approx(formula, rel=0.01)


@pytest.mark.parametrize(
    ("model", "blocks", "engine"),
    # Equal blocks, and of two kinds; gaps of SmolLM3's were 1 GiB too small.
    [("gpt2", 12, "autocast"), ("gpt2", 12, "half"), ("gemma-3-1b", 26, "half"), ("smollm3-3b", 36, "autocast")],
)
def test_a_block_of_each_kind_stands_for_all(model, blocks, engine, monkeypatch) -> None:
    shape = StepShape(model, batch_size=2, max_length=64, engine=engine, gradient_checkpointing=True)
    assert len(set(cut(build(shape)))) < 5
    some = simulate(shape)
    monkeypatch.setattr(step_on_meta, "cut", lambda model: list(range(len(blocks_of(model)))))
    every = simulate(shape)
    if model == "gpt2":
        assert every == some
    parts, others = every.pop("parts"), some.pop("parts")
    assert every == some and every["blocks"] == blocks  # sizes and operations
    # Both kinds of gemma's blocks have one table of positions, which its last block of a kind frees.
    for part, other in zip(parts, others, strict=True):
        assert part["peak_bytes"] == pytest.approx(other["peak_bytes"], rel=0.01)


def test_only_adapters_have_gradients_and_mfu_counts_the_products_that_are_computed() -> None:
    """Counted as if all were trained, MFU was half as much again as the GPU did."""
    step = simulate(StepShape(**ADAPTED))
    assert step["trained"]["parameters"] == ADAPTERS and step["frozen"]["bytes"] == 2 * WEIGHTS
    assert step["parts"][-1]["gradient_bytes"] == 4 * ADAPTERS  # fp32, as the adapters under autocast
    model = {"parameters": WEIGHTS + ADAPTERS, "trained_parameters": ADAPTERS, "embedding_parameters": HEAD}
    record = {"gpu_names": ["NVIDIA H200"], "precision": "bf16", "model": model | {"layers": 24, "hidden_size": 1024}}
    run = Run(Path("run"), record=typed(record | {"world_size": 1}, RunRecord))
    speeds = {"train/tokens_per_second": 1024, "train/samples_per_second": 2, "train/logit_positions_per_second": 0}
    found = utilisation(run, speeds)
    by_convention, without_head = (found[name] / 100 * 989e12 for name in ("mfu_by_convention_percent", "mfu_percent"))
    assert by_convention == pytest.approx(product_flops(step), rel=0.001)
    assert by_convention - without_head == pytest.approx(4 * HEAD * 1024)


@pytest.mark.parametrize("compiled", [{}, {"fast": True, "attention": "flex", "loss": "chunked", "compile": True}])
def test_four_bits_take_what_bitsandbytes_takes(compiled: dict) -> None:
    packed, state = quantize_4bit(torch.zeros(1024, 1024), quant_type="nf4", compress_statistics=True)
    lora, qlora = (simulate(StepShape(**ADAPTED, **compiled, loss_chunk=64, four_bits=bits)) for bits in (False, True))
    frozen = qlora["frozen"]
    assert frozen["bytes"] == 2 * (WEIGHTS - LINEAR) + packed.nbytes * LINEAR // 1024**2
    assert frozen["scale_bytes"] == (state.absmax.nbytes + state.state2.absmax.nbytes) * LINEAR // 1024**2
    kept = [max(part["end_bytes"] for part in step["parts"]) for step in (lora, qlora)]
    assert kept[1] - kept[0] < 2 * LINEAR  # no whole weight stays for the backward pass


def test_compiled_blocks_keep_what_was_measured() -> None:
    """It had traced the first block, whose input needs no gradient where the embedding is frozen: 7 % too little."""
    shape = {"model_name": "llama-3.2-1b", "batch_size": 64, "labelled": 1098, "loss_chunk": 4096}
    step = simulate(StepShape(**ADAPTED | TOP | shape))
    run = REPO / "logs/reference/h200x1-2026-11-25a-lora/lora/20261125-024318-p5255"
    states_bytes = step["frozen"]["bytes"] + 12 * step["trained"]["parameters"]
    measured_mib = json.loads((run / "summary.json").read_text())["peak_mem_alloc_mib"]
    assert peak_mib(step, states_bytes, "peak_bytes") == pytest.approx(measured_mib, rel=0.03)


def test_unlike_blocks_are_compiled_each_as_they_are(tmp_path: Path) -> None:
    """DeepSeek's rung 12 was unknown: all blocks became the first one, and attention's results had a query's size."""
    small = {"hidden_size": 64, "num_hidden_layers": 3, "n_routed_experts": 8, "vocab_size": 512, "kv_lora_rank": 16}
    config = json.loads((REPO / "workshop/shapes/deepseek-v2-lite.json").read_text()) | small
    (tmp_path / "config.json").write_text(json.dumps(config))
    eager, compiled = ({**TOP, "max_length": 64, "loss_chunk": 64, "compile": on} for on in (False, True))
    one, other = (simulate(StepShape(str(tmp_path), batch_size=2, labelled=9, **to)) for to in (eager, compiled))
    assert one["parameters"] == other["parameters"] and peak_mib(other, 0) < peak_mib(one, 0)
