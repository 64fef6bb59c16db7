"""The environment, the clone and the runs of a participant: what is missing is said, and nothing is lost."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.launching import REPO, run
from tools.__main__ import main


def test_command_without_the_environment_says_in_one_line_how_to_get_it(tmp_path: Path) -> None:
    """A Python without any package, as a login node has it."""
    run("python", "-m", "venv", "--without-pip", tmp_path)
    plot = ["tools", "plot", "baseline", "--logs", "logs/reference/h200x1"]
    for code, command in ((2, plot), (1, ["workshop.data.prefetch"])):
        (line,) = run(tmp_path / "bin/python", "-m", *command, code=code).stderr.splitlines()
        assert line.startswith(f"error: {tmp_path}/bin/python has no ")
        assert f"`make install` in {REPO} once, then `" in line


def test_other_clone_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    """WORKSHOP_VENV: `make install` lets its Python find the instructor's clone from any folder."""
    for file in ("tools/__main__.py", "workshop/launch.sh"):
        (tmp_path / "clone" / file).parent.mkdir(parents=True)
        shutil.copy(REPO / file, tmp_path / "clone" / file)
    (tmp_path / "clone" / "baseline").mkdir()
    logs = ["--logs", str(REPO / "logs/reference/h200x1")]
    for folder, expected in (("clone/baseline", 2), (".", 0)):
        monkeypatch.chdir(tmp_path / folder)
        assert main(["runs", *logs]) == expected
    assert capsys.readouterr().err.startswith(f"error: this folder is in the clone {tmp_path}/clone, but these tools")


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
    run("bash", "-e", "-c", committed, cwd=repository)
    (repository / "env_vars.sh").write_text("BATCH_SIZE=8\n")
    for file in ("my_results.md", "notes.txt", "slurm-1.out", "cluster.env", ".venv"):
        (repository / file).touch()
    run("bash", "-e", "-c", reset, cwd=repository)
    assert (repository / "env_vars.sh").read_text() == "BATCH_SIZE=4\n"
    left = {path.name for path in repository.iterdir()}
    assert left == {".git", ".gitignore", "Makefile", "env_vars.sh", "logs", "cluster.env", ".venv"}
    assert (repository / "logs/baseline").exists(), "a run that nobody agreed to delete"
