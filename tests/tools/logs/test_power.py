"""Watts are of the timed steps, and the two ways to joules can be compared."""

import pytest

from tests.tools.conftest import figure_or_word
from tools.logs.runs import read_run

SUMMARY = {"timed_start": "2026/11/21 09:45:10.000000", "timed_end": "2026/11/21 09:45:40.000000", "timed_s": 30.0}
SUMMARY |= {"energy_j": 12_000.0, "real_tokens_per_joule": 2.5}


@pytest.mark.parametrize(
    ("summary", "busy", "expected"),
    [
        (SUMMARY, "390.00 W", [390, 700, 12_000, 2.5, pytest.approx(97.5)]),
        ({}, "390.00 W", ["not logged", 700, *["not logged"] * 3]),  # a run before
        (SUMMARY | {"timed_s": 9.0, "energy_j": None}, "390.00 W", [390, 700, *["under 10 s"] * 2, "not logged"]),
        (SUMMARY | {"energy_j": None}, "[N/A]", ["no sample", 700, "not logged", 2.5, "not logged"]),
        (SUMMARY, "", ["not logged", "not logged", 12_000, 2.5, "not logged"]),  # a log before
    ],
)
def test_power_and_energy_are_of_the_timed_steps_or_the_cell_says_why_not(make_run, summary, busy, expected):
    """A minute's log: 700 W, from second 10 to 40 `busy`; a sample is about the second before."""
    lines = ["timestamp, index, memory.used [MiB]" + ", power.draw [W]" * bool(busy)]
    for second in range(60):
        watts = busy if 10 < second <= 40 else "700.00 W"
        lines.append(f"2026/11/21 09:45:{second:02}.000, 0, 8 MiB" + f", {watts}" * bool(busy))
    run = read_run(make_run("20261121-094500-j1", summary=summary, **{"gpu_memory.csv": "\n".join(lines) + "\n"}))
    names = ("mean_power_w", "peak_power_w", "energy_j", "real_tokens_per_joule", "energy_by_power_percent")
    assert [figure_or_word(run, name) for name in names] == expected
