"""A model with the ladder's steps is the same function as the library's, or it is refused with a reason."""

import functools
import json
from importlib.util import find_spec
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch._dynamo.testing import CompileCounterWithBackend
from transformers import AutoConfig, AutoModelForCausalLM

from four_bits import quantize_blocks
from tests.workshop.kernels.fast_models.small_models import (
    EXAMPLES,
    FAMILIES,
    LENGTH,
    SIZES,
    TOKENIZER,
    batch,
    faster,
    gradients,
    small,
)
from workshop.kernels.fast_models import compile_blocks, pack, use_float8
from workshop.measure.run_facts import idle_parameters
from workshop.training.models import blocks_of

TOP = {"attention": "sdpa", "loss": "chunked", "chunk": 37}
# What the model computes, and how its rows are made.
STEPS = [
    ({"attention": "sdpa"}, False, False),
    ({"loss": "chunked", "chunk": 300}, False, False),
    ({}, False, True),
    (TOP, False, True),
    ({}, True, False),
    (TOP, True, True),
]
CASES = [
    *((name, *step) for name in SIZES for step in STEPS),
    *((family, *step) for family in FAMILIES for step in (STEPS[-2], STEPS[-1])),
]
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="its kernels are made for a GPU")


def trained(model: torch.nn.Module, inputs: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    loss = model(**inputs).loss
    loss.backward()
    return loss.detach(), gradients(model)


@functools.cache
def library(name: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Loss and gradients of the library's model for EXAMPLES."""
    return trained(small(name), batch(EXAMPLES))


def check_the_same(fast: torch.nn.Module, name: str, inputs: dict[str, torch.Tensor], atol: float = 1e-5) -> None:
    """Loss and gradients of the inputs are the library's."""
    loss, gradient = library(name)
    fast_loss, fast_gradient = trained(fast, inputs)
    torch.testing.assert_close(fast_loss.cpu(), loss, rtol=0, atol=atol)
    torch.testing.assert_close(fast_gradient.cpu(), gradient, rtol=atol, atol=atol)
    assert gradient.abs().max() > 0.1, "gradients near zero would be equal whatever happened"


@pytest.mark.parametrize(("name", "steps", "packed", "labelled"), CASES)
def test_loss_and_gradients_are_the_librarys(name: str, steps: dict[str, Any], packed: bool, labelled: bool) -> None:
    rows = pack(EXAMPLES, LENGTH) if packed else EXAMPLES
    check_the_same(faster(small(name), **steps), name, batch(rows, labelled=labelled))


@needs_gpu
@pytest.mark.parametrize("name", [*SIZES, *(family for family in FAMILIES if family != "gpt2")])
@pytest.mark.parametrize("attention", ["flex", "documents"])
@pytest.mark.parametrize("compiled", [False, True])
def test_own_kernels_on_a_gpu_are_exact(name: str, attention: str, compiled: bool) -> None:
    fast = faster(small(name), **TOP | {"attention": attention}).cuda()
    if compiled:
        compile_blocks(blocks_of(fast))
    packed = {key: value.cuda() for key, value in batch(pack(EXAMPLES, LENGTH), labelled=True).items()}
    check_the_same(fast, name, packed, atol=1e-4)


@pytest.mark.parametrize(
    ("name", "attention"),
    [*(("wider", kernel) for kernel in ("eager", "sdpa", "flex")), ("llama", "flex"), ("qwen3", "flex")],
)
@torch.no_grad()
def test_packed_examples_logits_are_exact(name: str, attention: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = small(name)
    with monkeypatch.context() as patch:  # without a GPU flex cannot train, and sdpa would take its place
        patch.setattr(torch.cuda, "is_available", lambda: True)
        fast = faster(model, attention=attention)
    inputs = batch(pack(EXAMPLES, LENGTH))
    hidden = fast._hidden(inputs["input_ids"], inputs["document_ids"])
    found = {}
    for ids, documents, row in zip(inputs["input_ids"], inputs["document_ids"], hidden, strict=True):
        for number in range(1, documents.max() + 1):
            found[tuple(ids[documents == number].tolist())] = fast.lm_head(row[documents == number])
    assert max(inputs["document_ids"].amax(1)) > 1, "nothing is packed"
    for example in EXAMPLES:
        alone = model(torch.tensor([example["input_ids"]])).logits[0]
        difference = (found[tuple(example["input_ids"])] - alone).abs().max()
        assert difference <= 1e-5 * alone.abs().max()


# How many times as far from fp32 as the library's own bf16, where blocks pass on fp32, or bf16, whose sum loses digits.
BF16 = {"tiny": (1, 1), "llama": (1.1, 1.2), "qwen3": (1.1, 1.2), "gpt2": (1.1, 3)}


@pytest.mark.parametrize("name", BF16)
def test_bf16_is_about_as_near_to_fp32_as_the_librarys_own(name: str) -> None:
    _, exact = library(name)
    packed = batch(EXAMPLES if name in SIZES else pack(EXAMPLES, LENGTH), labelled=True)

    def distance(model: torch.nn.Module, inputs: dict[str, torch.Tensor]) -> float:
        with torch.autocast("cpu", torch.bfloat16):
            _, gradient = trained(model, inputs)
        return float((gradient - exact).norm() / exact.norm())

    librarys = distance(small(name), batch(EXAMPLES))
    for stream, most in zip(("fp32", "bf16"), BF16[name], strict=True):
        assert 1e-3 < distance(faster(small(name), stream=stream, **TOP), packed) <= most * librarys


@pytest.mark.parametrize("family", ["tiny", "gpt2", "qwen3"])
def test_compiled_blocks_are_exact_and_compile_once(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Traced and differentiated as on a GPU, but not translated to C++, which takes half a minute here.
    traced = CompileCounterWithBackend("aot_eager")
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend=traced, fullgraph=True))
    fast = faster(small(family), **TOP)
    compile_blocks(blocks_of(fast))
    rows = pack(EXAMPLES, LENGTH)
    check_the_same(fast, family, batch(rows, labelled=True))
    fast(**batch(rows[::-1], labelled=True))  # other documents, another mask
    fast(**batch(rows[:-1], labelled=True))
    fast.eval()(**batch(EXAMPLES, labelled=True))
    assert traced.frame_count == 1


@pytest.mark.parametrize("family", ["tiny", "llama"])
def test_generation_and_saved_model_are_the_librarys(family: str, tmp_path) -> None:
    model, fast = small(family), faster(small(family), **TOP)
    prompt = TOKENIZER("Question: Where", return_tensors="pt")
    ask = {"max_new_tokens": 8, "do_sample": False, "pad_token_id": TOKENIZER.pad_token_id}
    assert torch.equal(fast.eval().generate(**prompt, **ask), model.eval().generate(**prompt, **ask))
    fast.save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["architectures"] == [type(model).__name__]
    again = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert torch.equal(again(**prompt).logits, model(**prompt).logits)


def test_experts_multiply_in_autocasts_type() -> None:
    """The library's take that of their weights, fp32, in which a compiled GPU multiplies one expert after the other."""
    sizes = {"vocab_size": 101, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    sizes |= {"intermediate_size": 16, "num_experts": 4, "num_experts_per_tok": 2}
    config = AutoConfig.for_model("olmoe", **sizes, pad_token_id=None, eos_token_id=None)
    model = AutoModelForCausalLM.from_config(config)
    assert idle_parameters(model) == 2 * 2 * 3 * 16 * 32  # two layers, two of four experts, three matrices
    fast = faster(model)
    experts, others = (block.mlp.experts for block in blocks_of(fast))
    assert type(experts) is type(others)  # or each block would be compiled anew
    with torch.autocast("cpu", torch.bfloat16):
        assert experts.gate_up_proj.dtype == experts.down_proj.dtype == torch.bfloat16
        fast(input_ids=torch.arange(6)[None], labels=torch.arange(6)[None]).loss.backward()
    name = "model.layers.0.mlp.experts.down_proj"
    assert isinstance(faster(model.to("meta")).get_parameter(name), torch.nn.Parameter)  # for FSDP2
    gradient = dict(fast.named_parameters())[name].grad
    assert gradient.dtype == torch.float32 and gradient.abs().sum() > 0


def with_adapters(model: torch.nn.Module, four_bits: bool) -> PeftModel:
    """The same random adapters of all linear layers, whose B is not zero: A has gradients, too."""
    if four_bits:
        quantize_blocks(model, torch.float32)
    adapted = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", r=4, target_modules="all-linear"))
    torch.manual_seed(0)
    for parameter in adapted.parameters():
        if parameter.requires_grad:
            torch.nn.init.normal_(parameter, std=0.1)
    return adapted


@pytest.mark.parametrize(("name", "four_bits"), [("tiny", True), ("llama", False)])
def test_top_rung_has_the_losses_and_gradients_of_the_librarys_model_with_adapters(name: str, four_bits: bool) -> None:
    models = [with_adapters(model, four_bits) for model in (small(name), faster(small(name), **TOP))]
    rows = batch(EXAMPLES), batch(pack(EXAMPLES, LENGTH), labelled=True)
    losses = [model(**inputs).loss for model, inputs in zip(models, rows, strict=True)]
    torch.testing.assert_close(losses[1], losses[0], rtol=0, atol=1e-5)
    sum(losses).backward()
    found = [{name: p.grad for name, p in model.named_parameters() if p.grad is not None} for model in models]
    assert found[0].keys() == found[1].keys() and all(".lora_" in name for name in found[0])
    for adapter, gradient in found[0].items():
        torch.testing.assert_close(found[1][adapter], gradient, rtol=1e-4, atol=1e-5, msg=adapter)
    assert max(gradient.abs().max() for gradient in found[0].values()) > 0.05


@pytest.mark.skipif(find_spec("torchao") is None, reason="requirements-gpu.txt")
@pytest.mark.parametrize("recipe", ["tensorwise", "rowwise"])
@pytest.mark.parametrize("family", ["tiny", "llama"])
def test_float8_is_near_the_exact_loss_and_gradients_but_not_equal(family: str, recipe: str) -> None:
    """It rounds the products of the blocks' linear layers, and nothing else."""
    found = []
    for float8 in (False, True):
        model = faster(small(family), attention="sdpa", loss="chunked")
        if float8:
            use_float8(blocks_of(model), recipe, emulate=True)
        found.append(trained(model, batch(pack(EXAMPLES, LENGTH), labelled=True)))
    (exact_loss, exact), (loss, gradient) = found
    assert loss == pytest.approx(exact_loss.item(), rel=0.02)
    assert 1e-3 < (gradient - exact).norm() / exact.norm() < 0.3
