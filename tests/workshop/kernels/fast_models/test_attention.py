"""The blocks that flex attention computes: those it needs, found without looking at every pair of positions."""

import os

import pytest
import torch
from torch.nn import functional
from torch.nn.attention.flex_attention import BlockMask, create_block_mask

from workshop.kernels.fast_models.attention import block_mask, slopes, visible
from workshop.kernels.fast_models.documents import attend, bounds
from workshop.run_folder.attention import fastest_kernel

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


def seen_in(documents: torch.Tensor):
    def seen(row, head, query, key):
        return causal(row, head, query, key) & (documents[row, query] == documents[row, key])

    return seen


def listed(mask: BlockMask, kind: str) -> list[list[int]]:
    """The blocks of `kind` (kv, full_kv, q, full_q), line by line."""
    numbers, indices = getattr(mask, f"{kind}_num_blocks"), getattr(mask, f"{kind}_indices")
    assert numbers.dtype == indices.dtype == torch.int32
    lines = zip(numbers.flatten().tolist(), indices.flatten(0, -2).tolist(), strict=True)
    return [line[:number] for number, line in lines]


@pytest.mark.parametrize(
    ("kind", "head_size", "packed", "length", "kernel"),
    [
        *(("bloom", 64, True, 8192, "documents"), ("bloom", 64, False, 2048, "flex"), ("bloom", 80, True, 512, "flex")),
        *(("llama", 64, True, 512, "documents"), ("llama", 64, False, 512, "documents")),
        *(("llama", 64, False, 1024, "cudnn"), ("llama", 96, True, 512, "flex"), ("gpt2", 64, True, 512, "sdpa")),
    ],
)
def test_rows_get_the_kernel_that_is_fastest_for_them(
    kind: str, head_size: int, packed: bool, length: int, kernel: str
) -> None:
    assert fastest_kernel(kind, head_size, packed, length) == kernel


@pytest.mark.parametrize("length", [128, 384, 512])
@pytest.mark.parametrize("seed", [0, 1, 2, None], ids=str)
def test_blocks_are_those_that_torch_finds_by_looking_at_all_pairs(length: int, seed: int | None) -> None:
    documents = None if seed is None else packed(6, length, seed)  # None: one document per row
    seen = causal if documents is None else seen_in(documents)
    found = block_mask(documents, length, seen, CPU)
    expected = create_block_mask(seen, None if documents is None else 6, None, length, length, device=CPU)
    assert found.mask_mod is seen
    for kind in ("kv", "full_kv", "q", "full_q"):
        assert listed(found, kind) == listed(expected, kind)


def test_length_that_is_no_multiple_of_the_block_loses_no_pair() -> None:
    documents = packed(6, 500, seed=0)
    found = block_mask(documents, 500, seen_in(documents), CPU)
    visible = (documents[:, :, None] == documents[:, None, :]).tril()
    for line, (some, full) in enumerate(zip(listed(found, "kv"), listed(found, "full_kv"), strict=True)):
        row, block = divmod(line, 4)
        for key_block in range(4):
            pairs = visible[row, block * 128 : block * 128 + 128, key_block * 128 : key_block * 128 + 128]
            assert pairs.any() <= (key_block in some or key_block in full), "a pair that nobody computes"
            assert (key_block in full) <= pairs.all(), "a pair that must not be seen"


@pytest.mark.skipif(
    not (torch.cuda.is_available() or os.environ.get("TRITON_INTERPRET")),
    reason="without a GPU it runs with triton and TRITON_INTERPRET=1",
)
@pytest.mark.parametrize(
    ("heads", "key_heads", "size", "alibi", "length"),
    [(4, 2, 16, False, 200), (3, 3, 32, True, 150), (2, 1, 256, False, 100)],
)
def test_kernel_of_short_documents_is_attention_within_each(
    heads: int, key_heads: int, size: int, alibi: bool, length: int
) -> None:
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
