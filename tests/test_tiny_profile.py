"""After `source tiny.env` nothing real runs; the rehearsal does that, and says what fails, why and what repeats it."""

import os
import re
from pathlib import Path

import pytest

from tests.launching import PATH, REPO, run, tiny_profile
from tests.tools.conftest import write_run
from tools.submit.submissions import read_list
from workshop.record.exercises import exercises_with
from workshop.settings.env_file import sourced

TINY = tiny_profile()
FILES = (file for folder in exercises_with("*.slurm") for file in folder.glob("*.txt"))
LISTS = [path for path in (*FILES, *REPO.glob("logs/reference/*/runs.txt")) if ".slurm" in path.read_text()]
SMALL = {"MODEL_NAME": "tiny", "MODEL_INIT": "random", "DATASET": "sample", "TOKENIZER_NAME": "sample"}
MOST = {
    **{"TRAIN_SIZE": 200, "EVAL_SIZE": 40, "MAX_LENGTH": 256, "NUM_EPOCHS": 5, "BATCH_SIZE": 4, "GRAD_ACC": 2},
    **{"MAX_STEPS": 300, "VOCAB_SIZE": 1024, "HIDDEN_SIZE": 64, "NUM_LAYERS": 4, "FF_DIM": 256, "SEQ_LENGTH": 256},
    **{"FABRIC_MAX_MIB": 4, "FABRIC_ITERATIONS": 5},
}


@pytest.mark.parametrize("path", LISTS, ids=lambda path: str(path.relative_to(REPO)))
def test_every_line_is_tiny(path: Path) -> None:
    known: dict[tuple, dict[str, str]] = {}  # lines differ in little: bash is asked once for the same settings
    for line in read_list(path, TINY):
        key = (line.exercise, *sorted(line.settings.items()))
        variables = {"NNODES": "1", "NPROC_PER_NODE": "1", "REPO": str(REPO)} | TINY | line.settings
        found = known.get(key) or known.setdefault(key, sourced(line.exercise / "env_vars.sh", variables))
        for name, value in SMALL.items():
            assert found.get(name, value) == value, line.place
        for name, most in MOST.items():
            assert int(found.get(name) or 0) <= most, f"{line.place}: {name}"
        if any(argument.startswith("-") for argument in line.arguments):
            # A launcher that does not refuse must not begin.
            variables = TINY | {"LOG_DIR": "/proc/nowhere"}
            job = run("bash", line.exercise / line.launcher, *line.arguments, code=1, env=variables)
            assert job.stderr.startswith("error: MODEL_NAME=tiny in your shell (tiny.env) and the argument ")


@pytest.mark.parametrize("state", ["completed", "failed"])
def test_completed_runs_are_filled_checked_and_plotted_and_a_failed_one_is_named(tmp_path: Path, state: str) -> None:
    """A participant's own runs are not touched."""
    logs = tmp_path / "done"
    (line,) = read_list(REPO / "baseline/tiny.txt", TINY)
    write_run(logs, "j1", {"submission": line.text, "state": state, "model": {"name": "tiny", "hidden_size": 64}})
    mine = {"PATH": PATH, "LOGS": str(logs), "LOG_DIR": str(tmp_path / "mine"), "HOME": os.environ.get("HOME", "/")}
    options = ["--local"] if state == "completed" else ["--local", "--match", "no line of it"]
    job = run("bash", "instructor/rehearse.sh", "baseline", "--", *options, code=int(state != "completed"), env=mine)
    assert len([*(logs / "baseline").iterdir()]) == 1 and not (tmp_path / "mine").exists()
    report = (logs / "report.txt").read_text()
    if state == "completed":
        assert "nothing failed" in job.stdout and (logs / "baseline.png").exists() and "1 completed" in report
    else:
        assert "FAILED with exit code 2: error: --match" in report and "python -m tools submit --list" in report


def test_every_exercise_has_tiny_runs_and_a_demo() -> None:
    taught = {folder.name for folder in exercises_with("tables.py")}
    assert {folder.name for folder in exercises_with("tiny.txt")} == taught
    assert {path.stem for path in (REPO / "instructor/demos").glob("*.md")} == taught
    named = re.findall(r"\]\(([\w/-]+)/README\.md\)", (REPO / "README.md").read_text())  # as the script finds them
    assert {Path(name).name for name in named} >= taught
    assert all(line.tiny for folder in exercises_with("tiny.txt") for line in read_list(folder / "tiny.txt", TINY))
