"""Before a course an instructor learns what fails, why, and what repeats it; a participant's runs are not touched."""

from pathlib import Path

import pytest

from tests.launching import PATH, REPO
from tests.tools.conftest import write_run
from tools.__main__ import main
from tools.commands.rehearse import Exercise, Rehearsal, chosen, tiny_environment
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
    assert "[1/1] baseline 1 completed ok ok ok ok" in printed
    assert "1 exercise in" in printed and "nothing failed" in printed
    assert (logs / "baseline.png").exists() and (logs / "report.txt").read_text() in printed
    assert len([*(logs / "baseline").iterdir()]) == 1, "the run was launched once more"
    assert not (tmp_path / "logs").exists(), "the participant's folder"


def test_what_fails_is_reported_with_its_reason_and_the_command_that_repeats_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEED", "none")  # refused before torch is imported
    assert main(["rehearse", "baseline", "--local"]) == 1
    (logs,) = (tmp_path / "logs/rehearsal").iterdir()
    report = (logs / "report.txt").read_text()
    assert "baseline: baseline.slurm: not started: error: SEED='none'" in report
    assert "--match baseline.slurm --again --logs" in report and "tiny.env && python -m tools submit" in report
    assert f"baseline: fill.txt: exit code 3: no runs of baseline in {logs}" in report
    assert f"  python -m tools fill baseline --tiny --logs {logs}\n" in report
    assert capsys.readouterr().out.count("FAILED") == 6  # in the progress and in the table


@pytest.mark.parametrize(("step", "cells"), [("submit.txt", "FAILED ok ok ok"), ("blank.md", "ok FAILED ok ok")])
def test_failure_of_any_step_is_in_the_exercise_s_row(tmp_path, capsys, monkeypatch, step: str, cells: str) -> None:
    logs, tool = completed(tmp_path / "done"), Rehearsal.tool

    def failing(rehearsal: Rehearsal, exercise: Exercise, words: list[str], file: str, *expected: object) -> Path:
        return tool(rehearsal, exercise, words, file, *([(9,)] if file == step else expected))

    monkeypatch.setattr(Rehearsal, "tool", failing)
    assert main(["rehearse", "baseline", "--local", "--logs", str(logs)]) == 1
    assert f"[1/1] baseline 1 completed {cells} " in capsys.readouterr().out
    assert f"baseline: {step}: exit code 0: " in (logs / "report.txt").read_text()


def test_unknown_exercise_and_sbatch_options_of_local_runs_are_errors(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rehearse", "basline", "--local"]) == 2
    assert "basline: found no tiny.txt" in capsys.readouterr().err
    assert main(["rehearse", "baseline", "--local", "--", "--partition=gpu"]) == 2
    assert "-- --partition=gpu: sbatch options, but the runs are on this machine" in capsys.readouterr().err


def test_every_exercise_has_tiny_runs_in_the_order_of_the_course_and_a_demo() -> None:
    found = chosen([], tiny_environment({"MODEL_NAME": "bigscience/bloom-7b1", "LOG_DIR": "mine"}))
    taught = {folder.name for folder in exercises_with("tables.toml")}
    assert {exercise.name for exercise in found} == taught
    assert {path.stem for path in (REPO / "instructor/demos").glob("*.md")} == taught
    assert [exercise.name for exercise in found][:3] == ["baseline", "deepspeed-single-gpu", "fsdp"]
    assert all(line.tiny for exercise in found for line in exercise.lines)
