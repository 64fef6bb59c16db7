"""A job that asks for less time than it needs is ended; one that asks for more than a partition gives never starts."""

import pytest

from tests.simulated_here import simulated_here
from tools.plan.gpus import GPUS
from tools.plan.submitted_lines import predictions_of
from tools.plan.workload import SOCKETS_GB_PER_S
from tools.submit.slurm import asked_minutes, minutes
from tools.submit.submissions import exercise_files, read_list


@pytest.mark.parametrize(
    ("written", "found"),
    [("30", 30), ("1:30", 1.5), ("12:00:00", 720), ("2-3", 3060), ("1-2:30", 1590), ("infinite", float("inf"))],
)
def test_durations_are_read_as_slurm_reads_them(written: str, found: float) -> None:
    assert minutes(written) == found


def test_every_line_asks_for_the_time_that_it_may_need_on_an_h200() -> None:
    lines = [line for file in exercise_files([]) for line in read_list(file, {})]
    with simulated_here():
        predictions = predictions_of(lines, GPUS["h200"], SOCKETS_GB_PER_S)
    for line, found in zip(lines, predictions, strict=True):
        if found:
            assert found.limit_min <= asked_minutes(line, {})[1], line.place
