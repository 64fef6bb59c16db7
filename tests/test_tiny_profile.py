"""After `source tiny.env` nothing real runs anywhere: no line of any list of runs, no option of a launcher."""

import subprocess
from pathlib import Path

import pytest

from tests.launching import REPO, tiny_profile
from tools.submit.submissions import Submission, read
from workshop.run_folder.env_file import sourced
from workshop.run_folder.exercises import exercises_with

TINY = tiny_profile()
FILES = (file for folder in exercises_with("*.slurm") for file in folder.glob("*.txt"))
LISTS = [path for path in (*FILES, *REPO.glob("logs/reference/*/runs.txt")) if ".slurm" in path.read_text()]
SMALL = {"MODEL_NAME": "tiny", "MODEL_INIT": "random", "DATASET": "sample", "TOKENIZER_NAME": "sample"}
MOST = {
    **{"TRAIN_SIZE": 200, "EVAL_SIZE": 40, "MAX_LENGTH": 256, "NUM_EPOCHS": 5, "BATCH_SIZE": 4, "GRAD_ACC": 2},
    **{"MAX_STEPS": 300, "VOCAB_SIZE": 1024, "HIDDEN_SIZE": 64, "NUM_LAYERS": 4, "FF_DIM": 256, "SEQ_LENGTH": 256},
    **{"FABRIC_MAX_MIB": 4, "FABRIC_ITERATIONS": 5},
}


def environment(line: Submission) -> dict[str, str]:
    """What the line's training finds, as its launcher makes it."""
    variables = {"NNODES": "1", "NPROC_PER_NODE": "1", "REPO": str(REPO)} | TINY | line.settings
    return sourced(line.exercise / "env_vars.sh", variables)


@pytest.mark.parametrize("path", LISTS, ids=lambda path: str(path.relative_to(REPO)))
def test_every_line_is_tiny(path: Path) -> None:
    known: dict[tuple, dict[str, str]] = {}  # lines differ in little: bash is asked once for the same settings
    for line in read(path, TINY):
        key = (line.exercise, *sorted(line.settings.items()))
        found = known.get(key) or known.setdefault(key, environment(line))
        for name, value in SMALL.items():
            assert found.get(name, value) == value, line.place
        for name, most in MOST.items():
            assert int(found.get(name) or 0) <= most, f"{line.place}: {name}"
        if any(argument.startswith("-") for argument in line.arguments):
            # Without a Python that could train: a launcher that does not refuse must not begin.
            variables = TINY | {"PATH": "/usr/bin:/bin", "WORKSHOP_VENV": "/nowhere", "LOG_DIR": "/nowhere"}
            command = ["bash", line.exercise / line.launcher, *line.arguments]
            job = subprocess.run(command, env=variables, capture_output=True, text=True)
            assert job.returncode == 1
            assert job.stderr.startswith("error: MODEL_NAME=tiny in your shell (tiny.env) and '--")
