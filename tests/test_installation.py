"""How one gets the environment is said wherever commands start, and by the programs where it is missing."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.launching import REPO
from tools.__main__ import main


def test_command_without_the_environment_says_in_one_line_how_to_get_it(tmp_path: Path) -> None:
    """A Python without any package, as a login node has it."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path], check=True)
    plot = ["tools", "plot", "baseline", "--logs", "logs/reference/h200x1"]
    for code, command in ((2, plot), (1, ["workshop.data.prefetch"])):
        job = subprocess.run([tmp_path / "bin/python", "-m", *command], cwd=REPO, capture_output=True, text=True)
        (line,) = job.stderr.splitlines()
        assert job.returncode == code
        assert line.startswith(f"error: {tmp_path}/bin/python has no ")
        assert f"`make install` in {REPO} once, then `" in line


def test_shared_environment_does_not_show_the_runs_of_the_clone_it_was_installed_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
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
