"""CONTRIBUTING.md leads a stranger: from a log to a cell of Table 2, and to a new metric by its definition."""

import shutil
from pathlib import Path

from tests.launching import REPO, git, run, tiny_profile


def test_new_metric_is_one_definition(make_run, logs: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    for folder in ("tools", "workshop/run_folder", "baseline"):
        shutil.copytree(REPO / folder, copy / folder)
    figures = (copy / "tools/logs/figures.py").read_text()
    new = '    Figure("warmup_steps", lambda run: summary(run).get("warmup_steps"), "Warm-up steps"),'
    (copy / "tools/logs/figures.py").write_text(figures.replace("_FIGURES = [", f"_FIGURES = [\n{new}"))
    table = "**Table 1** *T*\n\n| Metric | Value |\n|---|---|\n| Warm-up steps | |\n"
    (copy / "baseline/README.md").write_text(table)
    make_run("r1", summary={"warmup_steps": 3})
    printed = run("python", "-m", "tools", "fill", "baseline", "--logs", logs, "--plain", cwd=copy).stdout
    assert "| Warm-up steps | 3 |" in printed


def test_copied_baseline_is_an_exercise_that_can_be_submitted(tmp_path: Path) -> None:
    for name in git(REPO, "ls-files").splitlines():
        if not name.startswith("logs/reference/") and (REPO / name).is_file():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPO / name, tmp_path / name)
    section = (REPO / "CONTRIBUTING.md").read_text().partition("## Add an exercise\n\n")[2]
    run("bash", "-ec", section.partition("\n\n")[0], cwd=tmp_path)
    words = ("python", "-m", "tools", "submit", "my-idea", "--dry-run", "--local")
    assert "my-idea.slurm\n1 to run here" in run(*words, cwd=tmp_path, env=tiny_profile()).stdout
