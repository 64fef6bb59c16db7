"""Folders with a config.json as MODEL_NAME: the fast forward pass is exact for the model, or it is refused clearly.

The planner answers for the model, or says why not.
"""

from pathlib import Path

import pytest
from transformers import AutoConfig

from tests.simulated_here import simulated_here
from tools.errors import InputError
from tools.plan.ranking import Question, rank
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


NOT_PLANNED = {
    **dict.fromkeys(("granitemoe", "jamba", "qwen3_next"), "has experts, which are not planned"),
    "diffllama": "its step cannot be simulated: NotImplementedError: Cannot copy out of meta tensor",
    "rwkv": "its step cannot be simulated: RuntimeError: a block launches over 5,000 operations, as a loop",
}


@pytest.mark.parametrize("name", sorted(path.name for path in MODELS.iterdir()))
def test_model_is_planned_or_refused_with_a_reason(name: str) -> None:
    question = Question(str(MODELS / name), 1, 1, "h200", batch=1)
    with simulated_here():
        if name in NOT_PLANNED:
            with pytest.raises(InputError, match=f"models/{name}.*{NOT_PLANNED[name]}"):
                rank(question)
        else:
            assert rank(question)[0].prediction.verdict == "fits"
