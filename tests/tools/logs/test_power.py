"""Watts are of the timed steps, and the two ways to joules can be compared."""

import pytest

from tools.logs.runs import read_run

SUMMARY = {"timed_start": "2026/11/21 09:45:10.000000", "timed_end": "2026/11/21 09:45:40.000000", "timed_s": 30.0}
SUMMARY |= {"energy_j": 12_000.0, "real_tokens_per_joule": 2.5}


def gpu_log(idle: str = "100.00 W", busy: str = "390.00 W") -> str:
    """A minute, a sample a second: idle, busy from second 10 to 40, idle again; a sample is about the second before."""
    lines = ["timestamp, index, name, memory.used [MiB], power.draw [W]"]
    for second in range(60):
        watts = busy if 10 < second <= 40 else idle
        lines.append(f"2026/11/21 09:45:{second:02}.000, 0, NVIDIA H200, 8 MiB, {watts}")
    return "\n".join(lines) + "\n"


@pytest.fixture
def figures(make_run):
    def figures(summary: dict, log: str):
        return read_run(make_run("20261121-094500-j1", summary=summary, **{"gpu_memory.csv": log})).figures

    return figures


def test_power_is_of_the_timed_steps_and_its_energy_is_compared_with_the_counters(figures):
    found = figures(SUMMARY, gpu_log(idle="700.00 W"))
    assert (found.mean_power_w, found.peak_power_w) == (390, 700)
    assert (found.energy_j, found.real_tokens_per_joule) == (12_000, 2.5)
    assert found.energy_by_power_percent == pytest.approx(97.5)


@pytest.mark.parametrize(
    ("summary", "log", "mean", "energy"),
    [
        ({}, gpu_log(), "not logged", "not logged"),
        (SUMMARY | {"timed_s": 9.0, "energy_j": None}, gpu_log(), None, "under 10 s"),
        (SUMMARY | {"energy_j": None}, gpu_log(busy="[N/A]"), "no sample", "not logged"),
        (SUMMARY, "memory.used [MiB]\n5 MiB\n", "not logged", None),
    ],
    ids=["a run before", "a short run", "a GPU that does not report it", "a log without the column"],
)
def test_cell_says_why_there_is_no_power_or_energy(figures, summary, log, mean, energy):
    found = figures(summary, log)
    assert (found.mean_power_w is None and found.reason("mean_power_w")) == (mean or False)
    assert (found.energy_j is None and found.reason("energy_j")) == (energy or False)


def test_damaged_power_names_its_line(figures):
    assert "gpu_memory.csv:13: found '390 kW'" in figures(SUMMARY, gpu_log(busy="390 kW")).outcome("mean_power_w")[0]
