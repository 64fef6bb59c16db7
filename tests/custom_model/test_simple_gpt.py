"""The model does what its description says: an independent reference, masking, causality, arithmetic, generation."""

import math
import re
import subprocess
from pathlib import Path

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoModelForCausalLM

from custom_model.flops import Shapes
from custom_model.model import SimpleGPTConfig, SimpleGPTModel
from tests.workshop.data.questions import load_squad
from workshop.data.encoding import load_tokenizer
from workshop.training.generation import answer_questions
from workshop.training.models import model_size

REPO = Path(__file__).parents[2]
CPU = torch.device("cpu")


def small(seed: int = 0, **sizes: int) -> SimpleGPTModel:
    """Weights large enough that every part of the model shows in the logits."""
    torch.manual_seed(seed)
    shape = {"vocab_size": 40, "hidden_size": 16, "num_layers": 3, "num_heads": 4, "ff_dim": 24, "seq_length": 12}
    model = SimpleGPTModel(SimpleGPTConfig(**shape | sizes, initializer_range=0.3))
    for parameter in model.parameters():
        parameter.data += 0.05 * torch.randn_like(parameter)
    return model.eval()


def reference_logits(model: SimpleGPTModel, ids: list[int]) -> torch.Tensor:
    """[length, vocabulary] of one unpadded text: token by token, head by head, in double precision, without a mask."""
    weight = {name: tensor.double() for name, tensor in model.state_dict().items()}
    heads, size = model.config.num_heads, model.config.hidden_size // model.config.num_heads

    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        centred = x - x.mean()
        return centred / (centred.square().mean() + 1e-5).sqrt() * weight[f"{name}.weight"] + weight[f"{name}.bias"]

    def linear(x: torch.Tensor, name: str) -> torch.Tensor:
        return weight[f"{name}.weight"] @ x + weight[f"{name}.bias"]

    residual = [
        weight["token_embedding.weight"][token] + weight["position_embedding.weight"][i] for i, token in enumerate(ids)
    ]
    for layer in range(model.config.num_layers):
        block = f"blocks.{layer}"
        projected = [
            linear(norm(x, f"{block}.attention_norm"), f"{block}.attention.qkv_proj").view(3, heads, size)
            for x in residual
        ]
        attended = []
        for i, (queries, _, _) in enumerate(projected):
            mixed = []
            for head in range(heads):
                scores = torch.stack([queries[head] @ keys[head] for _, keys, _ in projected[: i + 1]])
                shares = (scores / math.sqrt(size)).exp()
                shares = shares / shares.sum()
                mixed.append(sum(share * projected[j][2][head] for j, share in enumerate(shares)))
            attended.append(residual[i] + linear(torch.cat(mixed), f"{block}.attention.out_proj"))
        residual = []
        for x in attended:
            inner = linear(norm(x, f"{block}.feed_forward_norm"), f"{block}.up_proj")
            inner = 0.5 * inner * (1 + torch.erf(inner / math.sqrt(2)))
            residual.append(x + linear(inner, f"{block}.down_proj"))
    return torch.stack([weight["token_embedding.weight"] @ norm(x, "final_norm") for x in residual])


def test_logits_equal_an_independent_reference() -> None:
    model = small()
    ids = [3, 17, 5, 5, 39, 0, 21]
    logits = model(torch.tensor([ids])).logits[0]
    torch.testing.assert_close(logits.double(), reference_logits(model, ids), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("side", ["left", "right"])
def test_K9_changing_a_padded_token_changes_nothing(side: str) -> None:
    model = small()
    real, padding = torch.tensor([3, 17, 5, 39]), torch.tensor([1, 1, 1])
    real_at = slice(3, 7) if side == "left" else slice(0, 4)
    mask = torch.zeros(2, 7, dtype=torch.long)
    mask[:, real_at] = 1
    rows = [torch.cat([junk, real] if side == "left" else [real, junk]) for junk in (padding, padding + 7)]
    logits = model(torch.stack(rows), attention_mask=mask).logits
    torch.testing.assert_close(logits[0, real_at], logits[1, real_at], rtol=0, atol=0)
    unpadded = model(real[None]).logits[0]
    torch.testing.assert_close(logits[0, real_at], unpadded)
    assert torch.isfinite(logits).all()


def test_K9_changing_a_later_token_changes_nothing_before_it() -> None:
    model = small()
    ids = torch.tensor([[3, 17, 5, 39, 8, 2]])
    changed = ids.clone()
    changed[0, 3] = 11
    before, after = model(ids).logits[0], model(changed).logits[0]
    torch.testing.assert_close(before[:3], after[:3], rtol=0, atol=0)
    assert (before[3:] - after[3:]).abs().amax(-1).min() > 1e-3  # from there on everything may change, and does


def test_K9_the_same_token_means_something_else_at_another_position() -> None:
    logits = small()(torch.full((1, 4), 7)).logits[0]
    assert (logits[0] - logits[1:]).abs().amax(-1).min() > 1e-3


def test_K9_vocabulary_is_the_setting_and_the_head_is_tied() -> None:
    model = small(vocab_size=33)
    assert model(torch.tensor([[1]])).logits.shape == (1, 1, 33)
    assert [name for name, parameter in model.named_parameters() if 33 in parameter.shape] == ["token_embedding.weight"]


def test_K9_the_model_is_one_file() -> None:
    files = subprocess.run(["git", "ls-files", "*.py"], cwd=REPO, capture_output=True, text=True, check=True).stdout
    texts = [(REPO / name).read_text() for name in files.split()]
    assert sum(bool(re.search(r"^class SimpleGPTModel\b", text, re.MULTILINE)) for text in texts) == 1


def test_loss_is_the_mean_over_the_next_tokens_that_are_targets() -> None:
    model = small()
    ids = torch.tensor([[3, 17, 5, 39]])
    output = model(ids, labels=torch.tensor([[-100, -100, 5, 39]]))
    likely = output.logits.log_softmax(-1)
    torch.testing.assert_close(output.loss, -(likely[0, 1, 5] + likely[0, 2, 39]) / 2)


def test_initial_weights_do_not_grow_with_depth() -> None:
    model = SimpleGPTModel(SimpleGPTConfig(100, 64, 8, 4, 256, 32))
    assert model.blocks[0].up_proj.weight.std().item() == pytest.approx(0.02, rel=0.1)
    assert model.blocks[0].down_proj.weight.std().item() == pytest.approx(0.02 / 4, rel=0.1)
    assert model.blocks[0].up_proj.bias.abs().max() == 0


def test_parameters_of_the_workshops_sizes() -> None:
    with torch.device("meta"):
        size = model_size(SimpleGPTModel(SimpleGPTConfig()))
    block = 12 * 2048**2 + 9 * 2048 + 8192  # matrices, then biases (3h + h + h) and norms (4h), and f of the expansion
    assert size.blocks == 3 * block
    assert size.parameters == 3 * block + (50_000 + 512) * 2048 + 2 * 2048


def test_saved_model_loads_and_answers_the_same(tmp_path: Path) -> None:
    model = small()
    model.save_pretrained(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    assert isinstance(loaded, SimpleGPTModel)
    ids = torch.tensor([[3, 17, 5]])
    torch.testing.assert_close(loaded(ids).logits, model(ids).logits, rtol=0, atol=0)
    greedy = {"max_new_tokens": 5, "do_sample": False, "pad_token_id": 1, "attention_mask": torch.ones_like(ids)}
    assert loaded.generate(ids, **greedy).tolist() == model.generate(ids, **greedy).tolist()


def test_generation_takes_the_most_likely_token_each_time() -> None:
    model = small()
    ids = torch.tensor([[3, 17, 5]])
    for _ in range(4):
        ids = torch.cat([ids, model(ids).logits[:, -1:].argmax(-1)], dim=1)
    out = model.generate(ids[:, :3], max_new_tokens=4, do_sample=False, pad_token_id=1, attention_mask=None)
    assert out.tolist() == ids.tolist()


def test_answers_do_not_depend_on_the_batch() -> None:
    tokenizer = load_tokenizer("sample")
    model = small(vocab_size=1024, seq_length=300)
    settings = {"max_length": 300, "max_new_tokens": 6, "device": CPU}
    examples = load_squad("sample", "validation")[:6]
    alone = answer_questions(model, tokenizer, examples, batch_size=1, **settings)
    assert len(set(alone.values())) > 2
    assert answer_questions(model, tokenizer, examples, batch_size=4, **settings) == alone


def test_gradient_checkpointing_changes_no_gradient() -> None:
    ids = torch.tensor([[3, 17, 5, 39]])
    gradients = []
    for checkpointing in (False, True):
        model = small().train()
        if checkpointing:
            model.gradient_checkpointing_enable()
        model(ids, labels=ids).loss.backward()
        gradients.append([parameter.grad for parameter in model.parameters()])
    for plain, checkpointed in zip(*gradients, strict=True):
        torch.testing.assert_close(plain, checkpointed)


def counted_flops(model: SimpleGPTModel, sequences: int, length: int) -> int:
    """Forward and backward as torch's own counter sees them; the plain attention, which it knows on every device."""
    ids = torch.randint(model.config.vocab_size, (sequences, length))
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        model(ids, labels=ids).loss.backward()
    return counter.get_total_flops()


@pytest.mark.parametrize(("layers", "sequences"), [(1, 4), (3, 2), (6, 1)])
def test_K8_flops_from_shapes_equal_torchs_counter(layers: int, sequences: int) -> None:
    sizes = {"vocab_size": 2000, "hidden_size": 64, "ff_dim": 256, "seq_length": 96}
    model = small(num_layers=layers, **sizes)
    ours = Shapes(64, 256, 2000, 96).flops_per_step(layers, sequences)
    assert ours == pytest.approx(counted_flops(model, sequences, 96), rel=0.02)
    assert model.flops_per_token(96) * 96 * sequences == ours
