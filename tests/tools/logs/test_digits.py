"""Columns of numbers that are read all at once are those that float() reads one by one."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tools.logs import columns, digits, nvidia_smi

LINES = [f"2026/01/05 08:00:00.{i:03}, {i % 8}, NVIDIA H200, {i * 7919 % 90000}, 143771, {i % 101}" for i in range(400)]
UNITS = [f"{line.rsplit(', ', 2)[0]} MiB, 143771 MiB, {line.rsplit(' ', 1)[1]} %" for line in LINES]


@given(st.lists(st.text(" 0159.-e/:", max_size=16), min_size=1), st.integers(0, 4))
@settings(max_examples=500, deadline=None)
def test_no_cell_is_read_as_another_number_than_float_reads(cells, decimals):
    width = max(map(len, cells))
    printed = "".join(cell.rjust(width) for cell in cells).encode()
    characters = np.frombuffer(printed, np.uint8).reshape(len(cells), width).T
    found = digits.numbers(characters, decimals)
    assert found is None or found.tolist() == [float(cell) for cell in cells]


@pytest.mark.parametrize("numbers", [[0, 7, 99_999], [123_456_789.125, 0.001, 12.5]])
def test_numbers_as_they_are_printed_are_read_at_once(numbers):
    decimals = 0 if isinstance(numbers[0], int) else 3
    printed = "".join(f"{number:15.{decimals}f}" for number in numbers).encode()
    found = digits.numbers(np.frombuffer(printed, np.uint8).reshape(len(numbers), -1).T, decimals)
    assert found.tolist() == numbers


@pytest.mark.parametrize("lines", [LINES, UNITS], ids=["without units", "with units"])
@pytest.mark.parametrize(
    "memory", [None, b"[N/A]", b"", b"12.5", b"1 2", b"5M0", b"-3", b"1e3", b"   7", b"7" * 17, b"x", b"3\r"]
)
def test_cell_among_400_costs_as_much_as_among_few(tmp_path, monkeypatch, lines, memory):
    cut = [line.encode().split(b",") for line in lines]
    if memory is not None:
        cut[200][3] = memory
    path = tmp_path / "gpu_memory.csv"
    path.write_bytes(b"".join(b",".join(line) + b"\n" for line in cut))
    at_once = seen(path)
    monkeypatch.setattr(columns, "_FEW", 10**9)
    assert at_once == seen(path)


def seen(path):
    try:
        return nvidia_smi.read(path, with_time=True).mib.tobytes()
    except columns.LogError as error:
        return str(error)
