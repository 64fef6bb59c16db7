"""The grid is what the README says, and a job array runs the same cells."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.launching import REPO, tiny_profile


def grid(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "benchmark/grid.py", *options], cwd=REPO, capture_output=True, text=True)


def test_submit_txt_is_the_grid_that_its_head_says() -> None:
    lines = (REPO / "benchmark/submit.txt").read_text().replace("  # must-do", "").splitlines()
    several = "the same with --gpus 2 --precisions bf16; and with --gpus 4 --precisions bf16"
    assert lines[1] == f"# Made by: python benchmark/grid.py; {several}"
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


@pytest.mark.usefixtures("optimizers_compiled")
def test_task_of_a_job_array_runs_its_line_and_looks_at_the_gpu_five_times_a_second(tmp_path: Path) -> None:
    """Task 6 is stage 1 in fp16. The shell's settings win: the tiny model, and two steps."""
    stub = tmp_path / "bin" / "nvidia-smi"  # writes down what it is told
    stub.parent.mkdir()
    stub.write_text(f'#!/bin/sh\n[ "$1" = -L ] || echo "$@" > {tmp_path}/told\n')
    stub.chmod(0o755)
    environment = tiny_profile() | {"LOG_DIR": str(tmp_path / "logs"), "SLURM_ARRAY_TASK_ID": "6", "MAX_STEPS": "2"}
    environment["PATH"] = f"{stub.parent}:{environment['PATH']}"
    del environment["FP16"], environment["BF16"]
    job = subprocess.run(
        ["bash", "benchmark/benchmark.slurm"], cwd=REPO, env=environment, capture_output=True, text=True, timeout=120
    )
    assert job.returncode == 0, job.stdout[-2000:] + job.stderr
    (run,) = (tmp_path / "logs" / "benchmark").iterdir()
    assert '"config": "zero1"' in (run / "run.json").read_text()
    assert "-lms 200 " in (tmp_path / "told").read_text()


def test_launcher_without_configuration_says_what_it_needs(tmp_path: Path) -> None:
    job = subprocess.run(
        ["bash", "benchmark/benchmark.slurm"],
        cwd=REPO,
        env=tiny_profile() | {"LOG_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert job.returncode == 1
    assert "expected a configuration, or a job array" in job.stderr
