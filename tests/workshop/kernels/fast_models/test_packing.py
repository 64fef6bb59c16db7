"""Packing loses nothing, fills the rows, and lets no example learn from its neighbour."""

from workshop.kernels.fast_models import pack


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


def test_first_token_of_an_example_is_no_target_of_the_one_before() -> None:
    (row,) = pack([example(3, 7), example(2, 9)], 8)
    assert row["document_ids"] == [1, 1, 1, 2, 2]
    assert row["labels"] == [-100, 7, 7, -100, 9]
