"""A folder made by `new-exercise` that does not run, or that the chapters' tests refuse, costs its author a day.

The exercise is made in a copy of the repository, without the reference runs, which it does not need.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import test_train_scripts as scripts
from tests.launching import REPO, tiny_profile
from tools.__main__ import main

NAME, LAUNCHER = "gradient-clipping", "gradient_clipping.slurm"


def run(copy: Path, *words: str, **more: str) -> str:
    answer = subprocess.run(words, cwd=copy, env=tiny_profile() | more, capture_output=True, text=True, timeout=200)
    assert answer.returncode == 0, answer.stdout[-3000:] + answer.stderr[-2000:]
    return answer.stdout


def tools(copy: Path, *words: str) -> str:
    return run(copy, sys.executable, "-m", "tools", *words)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the repository with a new exercise in it."""
    copy = tmp_path_factory.mktemp("copy")
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=REPO, capture_output=True, text=True, check=True
    ).stdout.split("\0")
    for name in listed:
        if name and not name.startswith("logs/reference/") and (REPO / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPO / name, copy / name)
    printed = tools(copy, "new-exercise", NAME)
    assert f"made {NAME}/: " in printed and "as CONTRIBUTING.md says (Add an exercise)" in printed
    return copy


def test_it_trains_and_its_table_is_filled_from_the_run(copy: Path) -> None:
    short = {"MAX_STEPS": "2", "SAVE": "no", "GENERATE_SIZE": "0", "EVAL_SIZE": "8", "OMP_NUM_THREADS": "1"}
    printed = run(copy, "bash", f"{NAME}/{LAUNCHER}", **short)
    assert f"next: python -m tools fill {NAME} --tiny" in printed
    table = tools(copy, "fill", NAME, "--tiny")
    (loss,) = (line for line in table.splitlines() if line.startswith("| Train Loss"))
    assert 3 < float(loss.split("|")[2]) < 9
    assert f"{LAUNCHER}\n1 to run here" in tools(copy, "submit", NAME, "--dry-run", "--local")


def test_the_chapters_tests_find_what_they_ask_for(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scripts, "REPO", copy)
    scripts.test_what_a_chapter_changes_comes_first_and_the_rest_is_the_baselines(NAME)
    scripts.test_launcher_shows_the_loggers_and_the_training_it_starts(copy / NAME / LAUNCHER)
    assert scripts.code_lines(NAME) == scripts.code_lines("baseline")


def test_it_changes_no_file_that_was_there(copy: Path) -> None:
    listed = ["git", "ls-files", "-z", "--", ":!logs/reference"]
    names = subprocess.run(listed, cwd=REPO, capture_output=True, text=True, check=True).stdout.split("\0")
    there = [name for name in names if (REPO / name).is_file()]
    assert there and all((copy / name).read_bytes() == (REPO / name).read_bytes() for name in there)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("logs", "logs exists already; expected a new name"),
        ("all", "'all': expected 2 to 40 small letters"),
        ("../outside", "'../outside': expected 2 to 40 small letters"),
        ("Gradient Clipping", "'Gradient Clipping': expected 2 to 40 small letters"),
    ],
)
def test_name_that_cannot_be_an_exercise_s_makes_nothing(name: str, says: str, capsys) -> None:
    before = sorted(REPO.iterdir())
    assert main(["new-exercise", name]) == 2
    assert says in capsys.readouterr().err
    assert sorted(REPO.iterdir()) == before
