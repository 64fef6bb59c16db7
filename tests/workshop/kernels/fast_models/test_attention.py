"""Attention's blocks, the kernel of short documents, and packing lose no pair and no example."""

import os

import pytest
import torch
from torch.nn import functional
from torch.nn.attention.flex_attention import BlockMask, create_block_mask

from workshop.kernels.fast_models import pack
from workshop.kernels.fast_models.attention import bounds, packed_blocks, slopes, visible

CPU = torch.device("cpu")


def packed(rows: int, length: int, seed: int) -> torch.Tensor:
    """Documents of random sizes, several per row, and often padding after them."""
    draw = torch.Generator().manual_seed(seed)
    documents = torch.zeros(rows, length, dtype=torch.long)
    for row in documents:
        start, number = 0, 1
        while start + (size := int(torch.randint(1, length, (1,), generator=draw))) <= length:
            row[start : start + size] = number
            start, number = start + size, number + 1
    return documents


def causal(row, head, query, key):
    return query >= key


def listed(mask: BlockMask, kind: str) -> list[list[int]]:
    """The blocks of `kind` (kv, full_kv, q, full_q), line by line."""
    numbers, indices = getattr(mask, f"{kind}_num_blocks"), getattr(mask, f"{kind}_indices")
    assert numbers.dtype == indices.dtype == torch.int32
    lines = zip(numbers.flatten().tolist(), indices.flatten(0, -2).tolist(), strict=True)
    return [line[:number] for number, line in lines]


@pytest.mark.parametrize("length", [128, 384, 512])
@pytest.mark.parametrize("seed", [0, 1, 2, None], ids=str)
def test_blocks_are_those_that_torch_finds_by_looking_at_all_pairs(length: int, seed: int | None) -> None:
    documents = None if seed is None else packed(6, length, seed)  # None: one document per row

    def seen(row, head, query, key):
        return causal(row, head, query, key) & (documents is None or documents[row, query] == documents[row, key])

    found = packed_blocks(documents, length, CPU)
    expected = create_block_mask(seen, None if documents is None else 6, None, length, length, device=CPU)
    for kind in ("kv", "full_kv", "q", "full_q"):
        assert listed(found, kind) == listed(expected, kind)


@pytest.mark.skipif(
    not (torch.cuda.is_available() or os.environ.get("TRITON_INTERPRET")),
    reason="without a GPU it runs with triton and TRITON_INTERPRET=1",
)
@pytest.mark.parametrize(
    ("heads", "key_heads", "size", "alibi", "length"),
    [(4, 2, 16, False, 200), (3, 3, 32, True, 150), (2, 1, 256, False, 100)],
)
def test_kernel_of_short_documents_is_exact(heads: int, key_heads: int, size: int, alibi: bool, length: int) -> None:
    from workshop.kernels.fast_models.documents import attend

    device = "cuda" if torch.cuda.is_available() else "cpu"
    dtype = torch.bfloat16 if size > 128 and device == "cuda" else torch.float32  # which would not fit its memory
    documents = packed(3, length, seed=0).to(device)
    draw = torch.Generator(device).manual_seed(0)
    query, key, value = (
        torch.randn(3, length, number, size, generator=draw, device=device).to(dtype).transpose(1, 2).requires_grad_()
        for number in (heads, key_heads, key_heads)
    )
    slope = slopes(heads, device) if alibi else None
    place = torch.arange(length, device=device)
    bias = slope[:, None, None] * (place - place[:, None]) if alibi else 0
    bias = torch.where(visible(length, documents, device), bias, float("-inf"))
    repeated = (of.float().repeat_interleave(heads // key_heads, 1) for of in (key, value))
    expected = functional.scaled_dot_product_attention(query.float(), *repeated, attn_mask=bias).transpose(1, 2)
    found, _ = attend(query, key, value, bounds(documents, length, device), slope, size**-0.5)
    upstream = torch.randn(found.shape, generator=draw, device=device).to(dtype)
    # The GPU multiplies fp32 in TF32, and rounds numbers of about 4 to bf16.
    tolerance = 1e-5 if device == "cpu" else 1e-2 if dtype == torch.float32 else 5e-2
    torch.testing.assert_close(found, expected.to(dtype), rtol=0, atol=tolerance)
    gradients = (
        torch.autograd.grad(of, (query, key, value), up) for of, up in ((found, upstream), (expected, upstream.float()))
    )
    for ours, exact in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, exact, rtol=0, atol=tolerance)


def example(size: int, token: int) -> dict[str, list[int]]:
    return {"input_ids": [token] * size, "attention_mask": [1] * size, "labels": [token] * size}


def test_every_example_is_in_one_row_whole() -> None:
    sizes = [1, 100, 37, 99, 50, 50, 63, 2]
    rows = pack([example(size, token) for token, size in enumerate(sizes)], 100)
    documents = [
        ids
        for row in rows
        for number in range(1, max(row["document_ids"]) + 1)
        if (ids := [i for i, d in zip(row["input_ids"], row["document_ids"], strict=True) if d == number])
    ]
    assert sorted(map(tuple, documents)) == sorted((token,) * size for token, size in enumerate(sizes))
    assert all(len(row["input_ids"]) <= 100 for row in rows)
    assert len(rows) == 5  # 402 tokens cannot be in four rows of 100
