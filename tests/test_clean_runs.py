"""Checkpoints fill disks: deleting runs asks first and leaves the reference; a course begins as the one before did."""

import re
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


def test_runs_go_only_after_a_yes_and_the_reference_stays(repository: Path) -> None:
    for answer in ("n\n", "\n", ""):
        assert "delete these folders? [y/N]" in clean_runs(repository, answer)
        assert (repository / "logs/baseline").is_dir()
    assert "logs/baseline" in clean_runs(repository, "y\n")
    assert not (repository / "logs/baseline").exists()
    assert (repository / "logs/reference/h200x1/baseline/run").is_dir()
    assert "no runs in logs/" in clean_runs(repository, "y\n")


def test_reset_between_two_courses_leaves_only_what_the_next_one_needs(repository: Path) -> None:
    cleaning = (REPO / "instructor/README.md").read_text().partition("## Cleaning up")[2]
    (reset,) = re.findall(r"^    (git .*?)  +#", cleaning, re.MULTILINE)
    shutil.copy(REPO / ".gitignore", repository)
    (repository / "env_vars.sh").write_text("BATCH_SIZE=4\n")
    committed = "git init -q && git add . && git -c user.name=a -c user.email=a commit -qm clone"
    subprocess.run(["bash", "-e", "-c", committed], cwd=repository, check=True)
    (repository / "env_vars.sh").write_text("BATCH_SIZE=8\n")
    for file in ("my_results.md", "notes.txt", "slurm-1.out", "cluster.env", ".venv"):
        (repository / file).touch()
    subprocess.run(["bash", "-e", "-c", reset], cwd=repository, check=True)
    assert (repository / "env_vars.sh").read_text() == "BATCH_SIZE=4\n"
    left = {path.name for path in repository.iterdir()}
    assert left == {".git", ".gitignore", "Makefile", "env_vars.sh", "logs", "cluster.env", ".venv"}
    assert (repository / "logs/baseline").exists(), "a run that nobody agreed to delete"
