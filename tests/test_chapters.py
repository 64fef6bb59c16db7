"""A chapter is a diff to the one before; a copy that drifts, or a figure that no log backs, would spoil the lesson."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.launching import folder_of
from tests.simulated_here import simulated_here
from tools.__main__ import main
from workshop.run_folder.exercises import exercises_with

REPO = Path(__file__).parents[1]
QUIZZES = [folder.name for folder in exercises_with("submit.txt")]


def test_figures_in_the_readmes_are_those_of_the_committed_logs() -> None:
    with simulated_here():
        assert main(["report", "--check"]) == 0


def test_reference_logs_name_no_folder_of_the_machine_they_come_from() -> None:
    found = [
        f"{path.relative_to(REPO)}: {line}"
        for path in (REPO / "logs" / "reference").rglob("*")
        if path.is_file()
        for line in path.read_text(errors="replace").splitlines()
        if re.search(r"(?<![\w.])/(?:root|home|work)/", line)
    ]
    assert found == []


def test_secrets_are_in_no_tracked_file() -> None:
    files = subprocess.run(["git", "ls-files"], cwd=REPO, capture_output=True, text=True, check=True).stdout.split()
    assigned = re.compile(r"WANDB_API_KEY\s*=\s*['\"]?[0-9a-f]{20,}")
    texts = {name: (REPO / name).read_text(errors="replace") for name in files if (REPO / name).is_file()}
    assert [name for name, text in texts.items() if assigned.search(text)] == []


@pytest.mark.parametrize("chapter", QUIZZES)
def test_questions_in_the_key_are_those_of_the_readme(chapter: str) -> None:
    files = REPO / f"instructor/answers/{chapter}.md", folder_of(chapter) / "README.md"
    key, readme = (path.read_text() for path in files)
    for name, heading in (("Prediction", "Predict"), ("Quiz", "Quiz")):
        section = readme.partition(f"\n## {heading}")[2].partition("\n## ")[0].partition("<details>")[0]
        asked = re.findall(r"^\d\. (.+(?:\n   .+)*)", section, re.M)
        quoted = re.findall(rf"^> \*\*{name} \d\.\*\* (.+(?:\n> .+)*)", key, re.M)
        without_links = [re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", question) for question in asked]
        quoted = [" ".join(question.replace("\n>", "").split()) for question in quoted]
        assert quoted == [" ".join(question.split()) for question in without_links]
        assert asked or name == "Prediction"
