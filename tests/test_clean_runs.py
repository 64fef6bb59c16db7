"""Checkpoints fill disks: how many stay is a setting, and deleting runs asks first and leaves the reference."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.launching import REPO


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    shutil.copy(REPO / "Makefile", tmp_path)
    for folder in ("reference/h200x1/baseline/run", "baseline/20260101-000000-p1/bloom-qa-finetuned"):
        (tmp_path / "logs" / folder).mkdir(parents=True)
    return tmp_path


def clean_runs(repository: Path, answer: str) -> str:
    command = ["make", "--no-print-directory", "clean-runs"]
    job = subprocess.run(command, cwd=repository, input=answer, capture_output=True, text=True, check=True)
    return job.stdout


@pytest.mark.parametrize("answer", ["n\n", "\n", ""])
def test_nothing_is_deleted_without_a_yes(repository: Path, answer: str) -> None:
    assert "delete these folders? [y/N]" in clean_runs(repository, answer)
    assert (repository / "logs/baseline").is_dir()


def test_runs_go_and_the_reference_stays(repository: Path) -> None:
    assert "logs/baseline" in clean_runs(repository, "y\n")
    assert not (repository / "logs/baseline").exists()
    assert (repository / "logs/reference/h200x1/baseline/run").is_dir()
    assert "no runs in logs/" in clean_runs(repository, "y\n")
