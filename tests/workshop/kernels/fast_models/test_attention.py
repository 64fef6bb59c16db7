"""The blocks that flex attention computes: those it needs, found without looking at every pair of positions."""

import pytest
import torch
from torch.nn.attention.flex_attention import BlockMask, create_block_mask

from workshop.kernels.fast_models.attention import block_mask

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
