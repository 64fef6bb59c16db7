"""The attention function for TRL's padding-free rows keeps the examples apart."""

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention as sdpa

import varlen_attention
from tests.workshop.kernels.fast_models.small_models import EXAMPLES, small


def causal_by_sdpa(query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, *, scale, window_size, enable_gqa):
    """What torch's kernel, which needs a GPU, computes of these arguments."""
    sizes = cu_seq_q.diff().tolist()
    assert (cu_seq_q.dtype, max_q, max_k, window_size) == (torch.int32, max(sizes), max(sizes), (-1, 0))
    assert torch.equal(cu_seq_q, cu_seq_k)
    documents = zip(*(part.transpose(0, 1).split(sizes, dim=1) for part in (query, key, value)), strict=True)
    rows = [sdpa(*document, is_causal=True, scale=scale, enable_gqa=enable_gqa) for document in documents]
    return torch.cat(rows, dim=1).transpose(0, 1)


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_examples_in_one_flattened_row_are_computed_as_each_alone(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(varlen_attention.varlen, "varlen_attn", causal_by_sdpa)
    varlen_attention.register()
    model, examples = small(family), [torch.tensor(example["input_ids"]) for example in EXAMPLES[:3]]
    alone = torch.cat([model(input_ids=tokens[None]).logits[0] for tokens in examples])
    model.set_attn_implementation(varlen_attention.NAME)

    # As TRL's collator gives them. Each token of padding is an example of its own.
    sizes = [len(tokens) for tokens in examples] + [1, 1]
    row = model(
        input_ids=torch.cat([*examples, torch.zeros(2, dtype=torch.long)])[None],
        position_ids=torch.cat([torch.arange(size) for size in sizes])[None],
        cu_seq_lens_q=torch.tensor([0, *sizes]).cumsum(0).int(),
        max_length_q=max(sizes),
        use_cache=False,
    ).logits[0]
    torch.testing.assert_close(row[:-2], alone, rtol=1e-4, atol=1e-5)
