"""BLOOM with the ladder's switches is the same function as the library's: logits, loss and gradients."""

import functools
import json
from collections.abc import Iterator

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend
from transformers import AutoModelForCausalLM

from custom_model.settings import CustomSettings
from tests.workshop.environment import ENVIRONMENT
from tests.workshop.small_bloom import EXAMPLES, LENGTH, SIZES, TOKENIZER, batch, bloom, climbed, gradients, settings
from workshop import bloom_attention
from workshop.encoding import encode_all
from workshop.errors import WorkshopError
from workshop.models import load_model
from workshop.packing import pack
from workshop.speed import check_machine, check_model
from workshop.squad import load_squad

TOP = {"ATTENTION": "sdpa", "LOSS": "chunked", "LOSS_CHUNK": "37", "LOGITS": "labelled"}
RUNGS = [
    {"ATTENTION": "sdpa"},
    {"LOSS": "chunked", "LOSS_CHUNK": "300"},
    {"LOGITS": "labelled"},
    TOP,
    {"PACKING": "true"},
    {"PACKING": "true"} | TOP,
]


@pytest.fixture
def one_thread() -> Iterator[None]:
    """For thousands of operations that are too small to share: threads that wait for each other take far longer."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def trained(model: torch.nn.Module, inputs: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    loss = model(**inputs).loss
    loss.backward()
    return loss.detach(), gradients(model)


@pytest.mark.parametrize("shape", SIZES)
@pytest.mark.parametrize("switches", RUNGS, ids=" ".join)
def test_loss_and_gradients_are_the_librarys(shape: str, switches: dict[str, str]) -> None:
    model = bloom(shape)
    fast = climbed(model, **switches)
    rows = pack(EXAMPLES, LENGTH) if "PACKING" in switches else EXAMPLES
    loss, gradient = trained(model, batch(EXAMPLES))
    fast_loss, fast_gradient = trained(fast, batch(rows, find_targets="LOGITS" in switches))
    torch.testing.assert_close(fast_loss, loss, rtol=0, atol=1e-5)
    torch.testing.assert_close(fast_gradient, gradient, rtol=1e-5, atol=1e-5)
    assert gradient.abs().max() > 0.1, "gradients near zero would be equal whatever happened"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="its kernels are made for a GPU")
@pytest.mark.parametrize("shape", SIZES)
@pytest.mark.parametrize("compiled", ["false", "true"])
def test_on_a_gpu_flex_attention_and_the_fused_loss_are_the_librarys_too(shape: str, compiled: str) -> None:
    model = bloom(shape)
    fast = climbed(model, **TOP | {"ATTENTION": "flex", "PACKING": "true", "COMPILE": compiled}).cuda()
    packed = {key: value.cuda() for key, value in batch(pack(EXAMPLES, LENGTH), find_targets=True).items()}
    loss, gradient = trained(model, batch(EXAMPLES))
    fast_loss, fast_gradient = trained(fast, packed)
    torch.testing.assert_close(fast_loss.cpu(), loss, rtol=0, atol=1e-4)
    torch.testing.assert_close(fast_gradient.cpu(), gradient, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("attention", ["eager", "sdpa", "flex"])
@torch.no_grad()
def test_logits_of_packed_examples_are_those_of_each_alone(attention: str) -> None:
    model = bloom("wider")
    fast = climbed(model, ATTENTION=attention, PACKING="true")
    if attention == "flex":  # without a GPU it cannot train, and sdpa has taken its place; but it can compute
        fast.attention = bloom_attention.flex
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


@pytest.mark.parametrize("stream", ["fp32", "bf16"])
@pytest.mark.parametrize("shape", SIZES)
def test_bf16_is_no_further_from_fp32_than_the_librarys_own(shape: str, stream: str) -> None:
    model = bloom(shape)
    _, exact = trained(bloom(shape), batch(EXAMPLES))
    with torch.autocast("cpu", torch.bfloat16):
        fast = climbed(model, STREAM=stream, BF16="true", **TOP)
        _, librarys = trained(model, batch(EXAMPLES))
        _, found = trained(fast, batch(EXAMPLES, find_targets=True))
    assert 1e-3 < (found - exact).norm() / exact.norm() <= (librarys - exact).norm() / exact.norm()


def test_curve_of_the_top_rung_is_the_textbooks_over_200_steps(one_thread: None) -> None:
    """The same eight examples in each step, once padded in two micro-batches of four, once packed in one."""
    model = bloom()
    fast = climbed(model, PACKING="true", **TOP)
    examples = encode_all(load_squad("sample", "train")[:8], TOKENIZER, 64)
    items = sum(label != -100 for example in examples for label in example["labels"][1:])
    padded = [batch(examples[:4], 96), batch(examples[4:], 96)]
    packed = [batch(pack(examples, 128), 128, find_targets=True)]
    curves = []
    for trainee, micro_batches in ((model, padded), (fast, packed)):
        optimizer = torch.optim.AdamW(trainee.parameters(), lr=1e-3)
        curves.append([])
        for _ in range(200):
            losses = [trainee(**inputs, num_items_in_batch=items).loss for inputs in micro_batches]
            sum(losses).backward()
            optimizer.step()
            optimizer.zero_grad()
            curves[-1].append(sum(losses).item())
    textbook, top = curves
    assert textbook[-1] < textbook[0] / 10
    assert top == pytest.approx(textbook, rel=1e-3, abs=1e-4)


def test_compiled_blocks_compute_the_same_and_compile_one_shape_only(monkeypatch: pytest.MonkeyPatch) -> None:
    # Traced and differentiated as on a GPU, but not translated to C++, which takes half a minute here.
    traced = CompileCounterWithBackend("aot_eager")
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend=traced, fullgraph=True))
    model = bloom()
    fast = climbed(model, COMPILE="true", PACKING="true", **TOP)
    loss, gradient = trained(model, batch(EXAMPLES))
    rows = pack(EXAMPLES, LENGTH)
    fast_loss, fast_gradient = trained(fast, batch(rows, find_targets=True))
    torch.testing.assert_close(fast_loss, loss, rtol=0, atol=1e-5)
    torch.testing.assert_close(fast_gradient, gradient, rtol=1e-5, atol=1e-5)
    fast(**batch(rows[::-1], find_targets=True))  # other documents, another mask
    fast(**batch(rows[:-1], find_targets=True))
    fast.eval()(**batch(EXAMPLES, find_targets=True))
    assert traced.frame_count == 1


def test_generation_and_saved_model_are_the_librarys(tmp_path) -> None:
    model = bloom()
    fast = climbed(model, PACKING="true", **TOP)
    prompt = TOKENIZER("Question: Where", return_tensors="pt")
    ask = {"max_new_tokens": 8, "do_sample": False, "pad_token_id": TOKENIZER.pad_token_id}
    assert torch.equal(fast.eval().generate(**prompt, **ask), model.eval().generate(**prompt, **ask))
    fast.save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["architectures"] == ["BloomForCausalLM"]
    again = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert torch.equal(again(**prompt).logits, model(**prompt).logits)


def test_without_switches_the_model_is_untouched() -> None:
    model = load_model(settings(), TOKENIZER)
    assert type(model).__module__.startswith("transformers.")
    assert "forward" not in vars(model.transformer.h[0])


def test_model_without_these_switches_is_refused_by_name() -> None:
    from transformers import GPT2Config

    with pytest.raises(WorkshopError, match=r"ATTENTION=sdpa PACKING=true: written for BLOOM, but .* is a gpt2"):
        check_model(settings(ATTENTION="sdpa", PACKING="true"), GPT2Config())


def test_custom_model_does_not_silently_ignore_a_switch() -> None:
    sizes = {"VOCAB_SIZE": "9", "HIDDEN_SIZE": "8", "NUM_LAYERS": "1", "NUM_HEADS": "2", "FF_DIM": "8"}
    fabric = {f"FABRIC_{name}": "1" for name in ("MIN_GB_PER_S", "MAX_MIB", "ITERATIONS", "WARMUP")}
    chosen = {"SEQ_LENGTH": "512", "USE_FSDP": "false", "LOSS": "chunked", "FP16": "false"}
    environ = ENVIRONMENT | sizes | fabric | chosen
    with pytest.raises(WorkshopError, match="LOSS=chunked: written for BLOOM"):
        CustomSettings.from_environment(environ)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_loss_that_needs_a_gpu_names_the_one_that_does_not() -> None:
    with pytest.raises(WorkshopError, match=r"LOSS=liger needs a GPU .*; expected LOSS=chunked"):
        check_machine(settings(LOSS="liger"))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"PACKING": "true", "PADDING": "dynamic"}, "PACKING=true and PADDING=dynamic: packed rows are full"),
        ({"COMPILE": "true", "PADDING": "dynamic"}, "COMPILE=true and PADDING=dynamic"),
        ({"FP16": "true", "LOSS": "chunked"}, "FP16=true and LOSS=chunked"),
        ({"PROFILE": "8:5"}, "PROFILE='8:5': expected two step numbers as FIRST:LAST"),
    ],
)
def test_combination_that_cannot_work_is_named(wrong: dict[str, str], message: str) -> None:
    with pytest.raises(WorkshopError, match=message):
        settings(**wrong)
