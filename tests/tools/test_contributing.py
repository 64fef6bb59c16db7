"""CONTRIBUTING.md leads a stranger: from a log to a cell of Table 2, and to a new metric by its definition."""

import re
import shutil
from pathlib import Path

from tests.launching import REPO, git, run, tiny_profile


def test_new_metric_is_one_definition(make_run, logs: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    for folder in ("tools", "workshop/record", "workshop/settings", "baseline"):
        shutil.copytree(REPO / folder, copy / folder)
    shutil.copy(REPO / "workshop/__init__.py", copy / "workshop")  # else an installed workshop would be taken
    figures = (copy / "tools/logs/figures.py").read_text()
    new = '    Figure("warmup_steps", lambda run: sources.summary(run).get("warmup_steps"), "Warm-up steps"),'
    (copy / "tools/logs/figures.py").write_text(figures.replace("_FIGURES = [", f"_FIGURES = [\n{new}"))
    table = "**Table 1** *T*\n\n| Metric | Value |\n|---|---|\n| Warm-up steps | |\n"
    (copy / "baseline/README.md").write_text(table)
    (copy / "baseline/RESULTS.md").unlink()
    make_run("r1", summary={"warmup_steps": 3})
    printed = run("python", "-m", "tools", "fill", "baseline", "--logs", logs, "--plain", cwd=copy).stdout
    assert "| Warm-up steps | 3 |" in printed


OWN_SETTINGS = """
from dataclasses import dataclass
from workshop.settings.settings import Settings, choice, setting

@dataclass(frozen=True, kw_only=True)
class IdeaSettings(Settings):
    idea: str = setting(choice("good", "bad"), "bad")
"""
OWN_FACTS = """
days = ["day-4"]
settings = "idea_settings.IdeaSettings"
scripts = { "train.py" = "none" }
launchers."my-idea.slurm".most_gpus = 1
record.settings.str = ["idea"]
"""
SHORT = {"MAX_STEPS": "2", "TRAIN_SIZE": "8", "EVAL_SIZE": "4", "MAX_LENGTH": "64", "GENERATE_SIZE": "0", "SAVE": "no"}


def test_new_exercise_trains_and_fills_its_table_and_changes_only_its_folder(tmp_path: Path) -> None:
    """With settings, a fact of its record and a day of its own: no file of workshop/ or tools/ lists it."""
    copy, logs = tmp_path / "copy", tmp_path / "logs"
    for name in git(REPO, "ls-files").splitlines():
        if not name.startswith("logs/reference/") and (REPO / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPO / name, copy / name)
    git(copy, "init", "--quiet")
    git(copy, "add", ".")
    section = (REPO / "CONTRIBUTING.md").read_text().partition("## Add an exercise\n\n")[2]
    run("bash", "-ec", section.partition("\n\n")[0], cwd=copy)
    assert "my-idea.slurm" in (copy / "my-idea/exercise.toml").read_text()
    (copy / "my-idea/exercise.toml").write_text(OWN_FACTS)
    (copy / "my-idea/idea_settings.py").write_text(OWN_SETTINGS)
    train = (copy / "my-idea/train.py").read_text()
    train = train.replace("workshop.settings.settings import Settings", "idea_settings import IdeaSettings")
    (copy / "my-idea/train.py").write_text(train.replace(" Settings.", " IdeaSettings."))

    def tools(*words: str | Path) -> str:
        return run("python", "-m", "tools", *words, "--logs", logs, cwd=copy, env=tiny).stdout

    tiny = tiny_profile() | SHORT
    assert "my-idea.slurm\n1 to run here" in tools("submit", "day-4", "--dry-run", "--local")
    environ = tiny | {"LOG_DIR": str(logs)}
    assert (
        "IDEA='none'" in run("bash", "my-idea/my-idea.slurm", cwd=copy, env=environ | {"IDEA": "none"}, code=1).stderr
    )
    run("bash", "my-idea/my-idea.slurm", cwd=copy, env=environ | {"IDEA": "good"})
    (folder,) = logs.glob("my-idea/*")
    asks = f"from tools.logs.runs import Path, read_run; run = read_run(Path('{folder}')); "
    asks += "print(run.fact('idea'), run.state)"
    assert run("python", "-c", asks, cwd=copy).stdout == "good completed\n"
    assert re.search(r"\| Train Loss \(mean\) \| \d", tools("fill", "my-idea", "--tiny"))
    assert git(copy, "status", "--porcelain").splitlines()[-1] == "?? my-idea/"
    assert git(copy, "diff", "--name-only") == ""
