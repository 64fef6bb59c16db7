"""A decoder trains fast where packed rows give its own function, and is refused with a reason elsewhere."""

import re
from typing import Any

import pytest
from transformers import AutoConfig

from workshop.kernels.fast_models import FAMILIES, difference

LATENT = ("deepseek_v2", "deepseek_v3")  # their head_dim is that of the rotated part alone
PASS = (*LATENT, "gemma3_text", "gpt_neox", "mixtral", "olmo2", "olmo3", "olmoe", "phi3", "qwen3_moe", "smollm3")


@pytest.mark.parametrize("kind", [*FAMILIES, *PASS])
def test_decoder_whose_packed_rows_are_exact_is_let_through(kind: str) -> None:
    assert difference(AutoConfig.for_model(kind), 512, "sdpa", "chunked") == ""


@pytest.mark.parametrize(
    ("kind", "values", "max_length", "reason"),
    [
        ("gemma3_text", {}, 8192, "gradients .* differ"),  # some layers see 4,096 tokens back
        ("phi3", {"sliding_window": 256}, 512, "gradients .* differ"),
        ("granite", {"logits_scaling": 8.0}, 512, "gradients .* differ"),  # logits are scaled after the head
        ("cohere", {}, 512, "gradients .* differ"),
        ("phi", {}, 512, "gradients .* differ"),  # a head with bias
        ("gemma2", {}, 512, "scaled_dot_product_attention|gradients"),  # scores with a soft cap
        ("gpt_oss", {}, 512, "scaled_dot_product_attention"),  # attention sinks
        ("mamba", {}, 512, "num_attention_heads"),
    ],
)
def test_decoder_that_would_be_another_function_is_refused_with_the_reason(
    kind: str, values: dict[str, Any], max_length: int, reason: str
) -> None:
    found = difference(AutoConfig.for_model(kind, **values), max_length, "sdpa", "full")
    assert re.search(reason, found), found
