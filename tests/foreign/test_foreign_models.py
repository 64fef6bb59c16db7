"""Folders with a config.json as MODEL_NAME: the fast forward pass is exact for the model, or it is refused clearly."""

from pathlib import Path

import pytest
from transformers import AutoConfig

from workshop.kernels.fast_models import difference

MODELS = Path(__file__).parent / "models"
VERDICTS = {
    **dict.fromkeys(("apertus", "arcee", "biogpt", "bitnet", "diffllama", "doge"), ""),
    "codegen": "ValueError: CodeGenForCausalLM does not support an attention implementation",
    "cohere2": "gradients of a small one differ by",
}


@pytest.mark.parametrize("name", VERDICTS)
def test_model_is_exact_or_refused_with_a_reason(name: str) -> None:
    found = difference(AutoConfig.from_pretrained(MODELS / name), 64, "sdpa", "chunked")
    assert found.startswith(VERDICTS[name]) and bool(found) == bool(VERDICTS[name])
