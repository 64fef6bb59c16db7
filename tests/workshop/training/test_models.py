"""Random shapes are the published models in every size that matters."""

import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from tests.workshop.environment import ENVIRONMENT
from workshop.data.encoding import load_tokenizer
from workshop.settings.settings import Settings
from workshop.training.models import DrawnElsewhere, load_model, model_size, shape_config

# As published: millions where the model's page says no more.
PARAMETERS = {
    **{"bloom-560m": 559.2e6, "bloom-1b1": 1065.3e6, "bloom-1b7": 1722.4e6, "bloom-3b": 3002.6e6},
    **{"bloom-7b1": 7069.0e6, "gpt2": 124_439_808, "llama-2-7b": 6_738_415_616, "mistral-7b": 7_248_023_552},
    **{"meta-llama/Llama-3.1-8B": 8_030_261_248, "llama-3.2-1b": 1_235_814_400},
    **{"qwen-2.5-0.5b": 494_032_768, "qwen-2.5-1.5b": 1_543_714_304, "qwen-2.5-3b": 3_085_938_688},
    **{"qwen-2.5-7b": 7_615_616_512, "gemma-3-1b": 999_885_952, "olmoe-1b-7b": 6_919_161_856},
    **{"qwen-3-0.6b": 596_049_920, "qwen-3-8b": 8_190_735_360, "smollm3-3b": 3_075_098_624},
    **{"qwen-3-4b": 4_022_468_096, "qwen-3-14b": 14_768_307_200, "qwen-3-32b": 32_762_123_264},
    **{"llama-3.2-3b": 3_212_749_824, "gemma-3-12b": 11_766_034_176, "gemma-3-27b": 27_009_346_304},
    **{"mistral-small-24b": 23_572_403_200, "gpt-oss-20b": 20_914_757_184, "olmo-3-7b": 7_298_011_136},
    **{"deepseek-v2-lite": 15_706_484_224},
}


def on_meta(name: str) -> torch.nn.Module:
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(shape_config(name))


@pytest.mark.parametrize(("name", "expected"), PARAMETERS.items())
def test_shape_has_the_published_number_of_parameters(name: str, expected: float) -> None:
    tolerance = 0.1e6 if name.startswith("bloom") else 0
    assert model_size(on_meta(name)).parameters == pytest.approx(expected, abs=tolerance)


def test_bf16_weights_have_gradients_and_moments_in_bf16() -> None:
    own = {"WEIGHTS": "bf16", "BF16": "true", "FP16": "false", "MODEL_NAME": "tiny", "MODEL_INIT": "random"}
    settings = Settings.from_environment(ENVIRONMENT | own, Path("none"))
    model = load_model(settings, load_tokenizer("sample"))
    with torch.autocast("cpu", torch.bfloat16):
        model(input_ids=(ids := torch.ones(1, 8, dtype=torch.long)), labels=ids).loss.backward()
    optimizer = torch.optim.AdamW(model.parameters())
    optimizer.step()
    states = [state[name] for state in optimizer.state.values() for name in ("exp_avg", "exp_avg_sq")]
    found = [one for parameter in model.parameters() for one in (parameter, parameter.grad)]
    assert {one.dtype for one in (*found, *states)} == {torch.bfloat16}


def test_K7_blocks_hold_54_percent_of_bloom_560m_not_80() -> None:
    size = model_size(on_meta("bloom-560m"))
    assert size.block_parameters / size.parameters == pytest.approx(0.54, abs=0.005)
    assert size.embedding_parameters / size.parameters == pytest.approx(0.459, abs=0.001)


@pytest.mark.parametrize("name", ["tiny", "tiny-llama", "tiny-olmoe", "falcon_mamba"])
def test_weights_drawn_on_another_device_are_those_of_a_model_made_there(name, tmp_path, monkeypatch) -> None:
    """All fp32 weights lay on one GPU until they were sharded. The device's double is the CPU: it has one tensor."""
    if name == "falcon_mamba":  # which draws numbers beside its weights
        sizes = {"hidden_size": 32, "num_hidden_layers": 2, "vocab_size": 64, "state_size": 4}
        AutoConfig.for_model(name, **sizes).save_pretrained(tmp_path)
        name = str(tmp_path)
    on_device: list[weakref.ref] = []
    empty_like = torch.empty_like

    def put(*given: Any, **named: Any) -> torch.Tensor:
        assert not any(one() is not None for one in on_device), "two tensors at once"
        on_device.append(weakref.ref(made := empty_like(*given, **named)))
        return made

    torch.manual_seed(1)
    expected, after = AutoModelForCausalLM.from_config(shape_config(name)), torch.rand(1)
    monkeypatch.setattr(torch, "empty_like", put)
    torch.manual_seed(1)
    with DrawnElsewhere(torch.device("cpu")):
        found = AutoModelForCausalLM.from_config(shape_config(name))
    assert torch.equal(torch.rand(1), after), "as many draws"
    weights = dict(found.named_parameters())
    assert all(torch.equal(weights[key], weight) for key, weight in expected.named_parameters())
    assert len(on_device) > len(weights) / 2, "drawn elsewhere"
