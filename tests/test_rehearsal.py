"""Before a course an instructor learns what fails, why, and what repeats it; a participant's runs are not touched."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.launching import PATH, REPO
from tests.tools.conftest import write_run
from tools.submit.submissions import read
from workshop.run_folder.env_file import sourced
from workshop.run_folder.exercises import exercises_with


@pytest.mark.parametrize("state", ["completed", "failed"])
def test_completed_runs_are_filled_checked_and_plotted_and_a_failed_one_is_named(tmp_path: Path, state: str) -> None:
    logs, tiny = tmp_path / "done", sourced(REPO / "tiny.env", {})
    (line,) = read(REPO / "baseline/tiny.txt", tiny)
    write_run(logs, "j1", {"submission": line.text, "state": state, "model": {"name": "tiny", "hidden_size": 64}})
    mine = {"PATH": PATH, "LOGS": str(logs), "LOG_DIR": str(tmp_path / "mine"), "HOME": os.environ.get("HOME", "/")}
    options = ["--local"] if state == "completed" else ["--local", "--match", "no line of it"]
    command = ["bash", str(REPO / "instructor/rehearse.sh"), "baseline", "--", *options]
    job = subprocess.run(command, env=mine, capture_output=True, text=True, timeout=300)
    assert job.returncode == (state != "completed"), job.stdout + job.stderr
    assert len([*(logs / "baseline").iterdir()]) == 1 and not (tmp_path / "mine").exists()
    report = (logs / "report.txt").read_text()
    if state == "completed":
        assert "nothing failed" in job.stdout and (logs / "baseline.png").exists() and "1 completed" in report
    else:
        assert "FAILED with exit code 2: error: --match" in report and "python -m tools submit --list" in report


def test_every_exercise_has_tiny_runs_and_a_demo() -> None:
    taught = {folder.name for folder in exercises_with("tables.toml")}
    assert {folder.name for folder in exercises_with("tiny.txt")} == taught
    assert {path.stem for path in (REPO / "instructor/demos").glob("*.md")} == taught
    named = re.findall(r"\]\(([\w/-]+)/README\.md\)", (REPO / "README.md").read_text())  # as the script finds them
    assert {Path(name).name for name in named} >= taught
    tiny = sourced(REPO / "tiny.env", {})
    assert all(line.tiny for folder in exercises_with("tiny.txt") for line in read(folder / "tiny.txt", tiny))
