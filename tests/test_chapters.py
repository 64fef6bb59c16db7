"""A chapter is a diff to the one before; a copy that drifts, or a figure that no log backs, would spoil the lesson."""

import ast
import difflib
import re
from dataclasses import MISSING, fields
from pathlib import Path

import pytest

from tests.launching import REPO, folder_of, git
from tests.simulated_here import simulated_here
from tools.__main__ import main
from tools.tables.markdown import tables_in
from workshop.record.exercises import declared, exercises_with, of_day
from workshop.settings.settings import Settings

QUIZZES = [folder.name for folder in exercises_with("submit.txt")]


def test_figures_in_the_readmes_are_those_of_the_committed_logs() -> None:
    with simulated_here():
        assert main(["report", "--check"]) == 0


def test_reference_logs_name_no_folder_of_the_machine_they_come_from() -> None:
    folder = re.compile(rb"(?<![\w.])/(?:root|home|work)/.*")
    logs = [path for path in (REPO / "logs/reference").rglob("*") if path.is_file()]
    assert {path: lines for path in logs if (lines := folder.findall(path.read_bytes()))} == {}


def test_secrets_are_in_no_tracked_file() -> None:
    files = git(REPO, "ls-files").split()
    assigned = re.compile(r"WANDB_API_KEY\s*=\s*['\"]?[0-9a-f]{20,}")
    texts = {name: (REPO / name).read_text(errors="replace") for name in files if (REPO / name).is_file()}
    assert [name for name, text in texts.items() if assigned.search(text)] == []


def test_exercises_are_named_not_numbered() -> None:
    """A course leaves some out and has others in another order; then a number points nowhere."""
    texts = git(
        REPO, "ls-files", "*.md", "*.py", "*.sh", "*.slurm", "*.txt", "*.env", "*.toml", ":!logs", ":!CHANGELOG.md"
    )
    numbered = re.compile(r"\bexercises?\s+\d+\b(?!<)", re.IGNORECASE)
    found = {name: numbered.findall((REPO / name).read_text()) for name in texts.split() if (REPO / name).is_file()}
    assert {name: numbers for name, numbers in found.items() if numbers} == {}


@pytest.mark.parametrize("chapter", QUIZZES)
def test_questions_in_the_key_are_those_of_the_readme(chapter: str) -> None:
    """Those of the quiz stand beside the sections that answer them, at most two at the end."""
    files = REPO / f"instructor/answers/{chapter}.md", folder_of(chapter) / "README.md"
    key, readme = (path.read_text() for path in files)
    beside = re.findall(r"^- \*\*Quiz (\d+)\.\*\* (.+(?:\n  .+)*)", readme, re.M)
    asked = {"Quiz": {int(number): text for number, text in beside}, "Prediction": {}}
    for name, heading in (("Prediction", "Predict"), ("Quiz", "Quiz")):
        section = readme.partition(f"\n## {heading}")[2].partition("\n## ")[0].partition("<details>")[0]
        own = re.findall(r"^(\d+)\. (.+(?:\n   .+)*)", section, re.M)
        asked[name] |= {int(number): text for number, text in own}
        assert name == "Prediction" or len(own) <= 2
        quoted = re.findall(rf"^\*\*{name} (\d+)\. (.+?)\*\*(?!\w)", key, re.M | re.S)
        without_links = {n: re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", text) for n, text in sorted(asked[name].items())}
        expected = [(str(number), " ".join(text.split())) for number, text in without_links.items()]
        assert [(number, " ".join(text.split())) for number, text in quoted] == expected
        assert quoted or name == "Prediction"


TRAINERS = [folder.name for folder in exercises_with("train.py") if "Trainer(" in (folder / "train.py").read_text()]
# The chapter that each is compared with, and how many lines of code are removed and added since, at most. An exercise
# that is not described here is compared with the baseline.
CHAPTERS: dict[str, tuple[str, int]] = {
    **{name: ("baseline", 35) for name in TRAINERS if name != "baseline"},
    **{"deepspeed-single-gpu": ("baseline", 2), "deepspeed-multi-gpu": ("deepspeed-single-gpu", 0)},
    **{"deepspeed-zero3-offload": ("deepspeed-multi-gpu", 9), "fsdp": ("baseline", 10), "custom_model": ("fsdp", 21)},
    **{"benchmark": ("deepspeed-single-gpu", 4), "resilience": ("baseline", 12), "speed-ladder": ("baseline", 29)},
    "lora": ("speed-ladder", 27),
}


def code_lines(chapter: str) -> list[str]:
    """Its train.py's lines without docstring and comments, as `diff` compares them."""
    text = (folder_of(chapter) / "train.py").read_text()
    below = text.splitlines()[ast.parse(text).body[0].end_lineno :]
    lines = (line.split("  # ")[0].rstrip() for line in below if not line.lstrip().startswith("#"))
    return [line for line in lines if line]


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_chapter_differs_from_the_one_before_by_its_lesson_only(chapter: str) -> None:
    before, most = CHAPTERS[chapter]
    changed = [line for line in difflib.ndiff(code_lines(before), code_lines(chapter)) if line[0] in "+-"]
    assert len(changed) <= most, "\n".join(changed)


# env_vars.sh

CHANGED, REST = "# ---- What this exercise changes ----", "# ---- As in the baseline ----"
EXPORT = re.compile(r'^export (\w+)="\$\{\1:-(.*)\}"$', re.MULTILINE)
OWN_MODEL = {"custom_model": {"MODEL_NAME", "MODEL_INIT"}}  # whose sizes are settings instead
BASELINE = dict(EXPORT.findall((REPO / "baseline/env_vars.sh").read_text()))


def test_every_setting_and_variable_is_where_a_participant_looks_for_it() -> None:
    """baseline/env_vars.sh shows the code's default of the settings that it does not export."""
    shown = re.findall(r"^#export (\w+)=(\S*) ", (REPO / "baseline/env_vars.sh").read_text(), re.MULTILINE)
    values = {item.name.upper(): item.default for item in fields(Settings) if item.default is not MISSING}
    code = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in values.items()}
    code["GPU_LOG_INTERVAL_MS"] = "1000"
    assert dict(shown) == {name: code[name] for name in code.keys() - BASELINE.keys() - {"CONFIG"}}
    assert [name for name in BASELINE.keys() & code.keys() if BASELINE[name] != code[name]] == []


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_what_a_chapter_changes_comes_first_and_the_rest_is_the_baselines(chapter: str) -> None:
    text = (folder_of(chapter) / "env_vars.sh").read_text()
    first, second = text.index(CHANGED), text.index(REST)
    assert not EXPORT.search(text[:first])
    changed, rest = dict(EXPORT.findall(text[first:second])), dict(EXPORT.findall(text[second:]))
    assert rest == {name: BASELINE[name] for name in rest}
    assert rest.keys() | changed.keys() | OWN_MODEL.get(chapter, set()) >= BASELINE.keys()
    assert not rest.keys() & changed.keys()
    assert [name for name, value in changed.items() if BASELINE.get(name) == value] == [], "not changed at all"


# Launchers

LAUNCHERS = [path for folder in exercises_with("*.slurm") for path in sorted(folder.glob("*.slurm"))]
LOGGERS = {tuple(re.findall(r'^export (\w+_LOGGER)="(.*?)(?: \\|")$', path.read_text(), re.M)) for path in LAUNCHERS}


@pytest.mark.parametrize("launcher", LAUNCHERS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_K13_launcher_shows_the_loggers_and_the_training_it_starts(launcher: Path) -> None:
    text, (loggers,) = launcher.read_text(), LOGGERS  # all have the same
    assert [words.split()[0] for _, words in loggers] == ["nvidia-smi", "psrecord", "python"]
    assert str(launcher.relative_to(REPO)) in text, "another's command line"
    assert f'/{launcher.parent.relative_to(REPO)}" ' in text, "it would run another exercise"
    assert re.search(r"\bworkshop.job.supervisor(?: \\\n)? +(python|torchrun|deepspeed|srun) ", text)
    assert text.count("\n") <= 30
    facts = declared(launcher.parent).launcher(launcher.name)
    for option, value in (("nodes", facts.nodes), ("gpus-per-node", facts.gpus_per_node)):
        assert f"\n#SBATCH --{option}={value}\n" in text, "exercise.toml says otherwise"


def test_timetable_has_the_exercises_that_declare_its_days() -> None:
    """prefetch and plan read the days of exercise.toml, people the timetable."""
    text = (REPO / "instructor/README.md").read_text()
    timetable = next(table for table in tables_in(text) if table.header[:2] == ["Day", "From"])
    every = {folder.name for folder in exercises_with("exercise.toml")}
    for day in ("1", "2", "3"):
        taught = {
            name for row in timetable.rows if row[0] == day for name in re.findall(r"[\w-]+", row[3].split(":")[0])
        }
        assert taught & every == {folder.name for folder in of_day(f"day-{day}")}
    in_half_a_day = [folder.name.partition("-")[0] for folder in of_day("half-day")]
    said = text.partition("Half a day: ")[2].partition(". Each")[0].lower().replace("zero", "deepspeed")
    assert in_half_a_day and all(name in said for name in in_half_a_day)
