"""The grid is what the README says; that a job array runs the same cells: tests/slurm/test_jobs.py."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.launching import REPO, tiny_profile


def grid(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "benchmark/grid.py", *options], cwd=REPO, capture_output=True, text=True)


def test_submit_txt_is_the_grid_that_its_head_says() -> None:
    lines = (REPO / "benchmark/submit.txt").read_text().replace("  # must-do", "").splitlines()
    made = grid().stdout + "".join(grid("--gpus", gpus, "--precisions", "bf16").stdout for gpus in "24")
    assert lines[2:] == made.splitlines()
    assert len(set(lines[2:])) == 4 * 3 * 3 + 2 * 4 * 3


def test_every_axis_multiplies_the_cells_and_repeats_come_last() -> None:
    lines = grid("--stages", "0,2", "--precisions", "bf16", "--batch", "8,16", "--repeats", "2").stdout.splitlines()
    assert len(lines) == 2 * 2 * 2
    assert ["REPEAT=1" in line for line in lines] == [True] * 4 + [False] * 4


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [("--stages", "0,4", "'4': expected 0, 1, 2, 3"), ("--batch", "8,many", "'many': expected whole numbers")],
)
def test_a_value_that_no_axis_has_is_named(option: str, value: str, expected: str) -> None:
    answer = grid(option, value)
    assert answer.returncode == 2
    assert expected in answer.stderr


def test_launcher_without_configuration_says_what_it_needs(tmp_path: Path) -> None:
    command, environment = ["bash", "benchmark/benchmark.slurm"], tiny_profile() | {"LOG_DIR": str(tmp_path)}
    job = subprocess.run(command, cwd=REPO, env=environment, capture_output=True, text=True)
    assert job.returncode == 1
    assert "expected a configuration, or a job array" in job.stderr
