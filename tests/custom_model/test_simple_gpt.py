"""The model does what its description says: the library's GPT-2, masking, causality; weak scaling by its shapes."""

import re
from dataclasses import replace

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode
from transformers import GPT2Config, GPT2LMHeadModel

from custom_model.flops import Shapes
from custom_model.model import SimpleGPTConfig, SimpleGPTModel
from tests.launching import REPO
from tools.tables import markdown
from workshop.settings.configuration import read_rule
from workshop.settings.env_file import sourced


def small(**sizes: int) -> SimpleGPTModel:
    """Weights large enough that every part of the model shows in the logits."""
    torch.manual_seed(0)
    shape = {"vocab_size": 40, "hidden_size": 16, "num_layers": 3, "num_heads": 4, "ff_dim": 24, "seq_length": 12}
    model = SimpleGPTModel(SimpleGPTConfig(**shape | sizes, initializer_range=0.3))
    for parameter in model.parameters():
        parameter.data += 0.05 * torch.randn_like(parameter)
    return model.eval()


# The parts of the library's GPT-2, which is the same model but for its names and transposed weights.
IN_GPT2 = {
    **{"token_embedding": "transformer.wte", "position_embedding": "transformer.wpe", "blocks": "transformer.h"},
    **{"attention_norm": "ln_1", "attention.qkv_proj": "attn.c_attn", "attention.out_proj": "attn.c_proj"},
    **{"feed_forward_norm": "ln_2", "up_proj": "mlp.c_fc", "down_proj": "mlp.c_proj"},
    **{"final_norm": "transformer.ln_f", "head": "lm_head"},
}


def as_gpt2(model: SimpleGPTModel) -> GPT2LMHeadModel:
    """The library's GPT-2 with the model's weights."""
    ours = model.config
    sizes = {"vocab_size": ours.vocab_size, "n_positions": ours.seq_length, "n_embd": ours.hidden_size}
    sizes |= {"n_layer": ours.num_layers, "n_head": ours.num_heads, "n_inner": ours.ff_dim}
    gpt2 = GPT2LMHeadModel(GPT2Config(**sizes, activation_function="gelu")).eval()
    weights = {}
    for name, tensor in model.state_dict().items():
        for part, theirs in IN_GPT2.items():
            name = re.sub(rf"(^|\.){part}\.", rf"\1{theirs}.", name)
        if ".c_attn." in name:  # the library has all queries first
            tensor = tensor.unflatten(0, (ours.num_heads, 3, -1)).transpose(0, 1).flatten(0, 2)
        weights[name] = tensor.t() if ".c_" in name else tensor
    gpt2.load_state_dict(weights)
    return gpt2


def test_logits_are_those_of_the_library_s_gpt2() -> None:
    model, ids = small(), torch.tensor([[3, 17, 5, 5, 39, 0, 21]])
    torch.testing.assert_close(model(ids).logits, as_gpt2(model)(ids).logits, rtol=1e-4, atol=1e-4)


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


@pytest.mark.parametrize(("layers", "sequences"), [(1, 4), (3, 2), (6, 1)])
def test_K8_flops_from_shapes_equal_torchs_counter(layers: int, sequences: int) -> None:
    sizes = {"vocab_size": 2000, "hidden_size": 64, "ff_dim": 256, "seq_length": 96}
    model = small(num_layers=layers, **sizes)
    ours = Shapes(64, 256, 2000, 96).flops_per_step(layers, sequences)
    ids = torch.randint(2000, (sequences, 96))
    # Forward and backward as torch's own counter sees them; the plain attention, which it knows on every device.
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        model(ids, labels=ids).loss.backward()
    assert ours == pytest.approx(counter.get_total_flops(), rel=0.02)
    assert model.flops_per_token(96) * 96 * sequences == ours


RULES = REPO / "custom_model" / "weak_scaling_configs"
DEFAULTS = sourced(REPO / "custom_model/env_vars.sh", {"REPO": str(REPO)})
WORKSHOP = Shapes(*(int(DEFAULTS[name]) for name in ("HIDDEN_SIZE", "FF_DIM", "VOCAB_SIZE", "MAX_LENGTH")))
WITH_BLOOMS_HEAD = replace(WORKSHOP, vocab_size=250_880)


def work_tflop(rule: str, shapes: Shapes = WORKSHOP) -> list[float]:
    return [shapes.flops_per_step(*sizes) / 1e12 for sizes in read_rule(RULES / f"{rule}.json").values()]


def test_K8_figures_of_the_readme_are_computed_and_the_corrected_rule_keeps_the_work_within_2_percent() -> None:
    assert max(work_tflop("constant")) / min(work_tflop("constant")) < 1.02
    lines = (REPO / "custom_model" / "README.md").read_text().splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("| GPUs | Batch per GPU | Published: layers |"))
    written = [markdown.cells(line) for line in lines[start + 2 : start + 6]]
    published, constant = read_rule(RULES / "published.json"), read_rule(RULES / "constant.json")
    rules = ("published", WORKSHOP), ("published", WITH_BLOOMS_HEAD), ("constant", WORKSHOP)
    figures = zip(*(work_tflop(*rule) for rule in rules), strict=True)
    assert written == [
        [
            *(str(gpus), str(sizes.batch_size), str(sizes.num_layers), f"{ours:.2f}", f"{blooms:.1f}"),
            *(str(constant[gpus].num_layers), f"{corrected:.2f}"),
        ]
        for (gpus, sizes), (ours, blooms, corrected) in zip(published.items(), figures, strict=True)
    ]
