"""Before a course an instructor learns what fails, why, and what repeats it; a participant's runs are not touched."""

from pathlib import Path

import pytest

from tests.launching import PATH, REPO
from tests.tools.conftest import write_run
from tools.__main__ import main
from tools.commands.rehearse import chosen, tiny_environment
from workshop.run_folder.exercises import exercises_with


@pytest.fixture(autouse=True)
def shell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", PATH)
    monkeypatch.setenv("LOG_DIR", str(tmp_path / "logs"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


def completed(logs: Path) -> Path:
    """A rehearsal of the baseline whose run has completed: nothing is left to launch."""
    ((line,),) = (exercise.lines for exercise in chosen(["baseline"], tiny_environment({})))
    write_run(logs, "20261121-094500-p1", {"submission": line.text, "model": {"name": "tiny", "hidden_size": 64}})
    return logs


def test_completed_runs_are_filled_checked_and_plotted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logs = completed(tmp_path / "done")
    assert main(["rehearse", "baseline", "--local", "--logs", str(logs)]) == 0
    printed = capsys.readouterr().out
    assert "baseline: 1 completed\n" in printed
    assert "nothing failed" in printed
    assert (logs / "baseline.png").exists() and (logs / "report.txt").read_text() in printed
    assert len([*(logs / "baseline").iterdir()]) == 1, "the run was launched once more"
    assert not (tmp_path / "logs").exists(), "the participant's folder"


def test_every_exercise_has_tiny_runs_in_the_order_of_the_course_and_a_demo() -> None:
    found = chosen([], tiny_environment({"MODEL_NAME": "bigscience/bloom-7b1", "LOG_DIR": "mine"}))
    taught = {folder.name for folder in exercises_with("tables.toml")}
    assert {exercise.name for exercise in found} == taught
    assert {path.stem for path in (REPO / "instructor/demos").glob("*.md")} == taught
    assert [exercise.name for exercise in found][:3] == ["baseline", "deepspeed-single-gpu", "fsdp"]
    assert all(line.tiny for exercise in found for line in exercise.lines)
