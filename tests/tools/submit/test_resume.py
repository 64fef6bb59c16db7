"""submit --resume starts a run again as it was started, in its own folder."""

import json
from pathlib import Path

import pytest

from tools.commands.submit import started_again
from tools.errors import InputError

RECORD = {"exercise": "fsdp", "state": "failed", "start_time": "2026-11-22T10:00:00+00:00", "gpus_per_node": 2}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "logs/fsdp/20261122-100000-p1"
    folder.mkdir(parents=True)
    launcher = tmp_path / "code/fsdp/multi_gpu.slurm"
    launcher.parent.mkdir(parents=True)
    launcher.touch()
    (folder / ".launcher").write_text(f"{launcher}\0a file.json\0")
    (folder / ".settings.json").write_text('{"TRAIN_SIZE": "64", "GRAD_ACC": "4"}')
    (folder / "run.json").write_text(json.dumps(RECORD | {"nodes": 1, "submission": "multi_gpu.slurm"}))
    return folder


def test_run_starts_again_with_its_arguments_and_settings_whatever_the_shell_sets(run: Path, tmp_path: Path) -> None:
    command, options, environment = started_again(Path(run.name), tmp_path / "logs", {"GRAD_ACC": "8"})
    assert command == [str(tmp_path / "code/fsdp/multi_gpu.slurm"), "a file.json"]
    assert options == ["--nodes=1", "--gpus-per-node=2"]
    assert environment == {
        **{"TRAIN_SIZE": "64", "GRAD_ACC": "4", "GPUS_PER_NODE": "2", "RESUME_RUN": str(run)},
        "SUBMISSION": "multi_gpu.slurm",
        "SHARDLAB": str(tmp_path / "code"),
    }


@pytest.mark.parametrize("state", ["completed", "running"])
def test_run_that_needs_no_second_attempt_gets_none(run: Path, state: str) -> None:
    (run / "run.json").write_text(json.dumps(RECORD | {"state": state}))
    with pytest.raises(InputError, match=f"{state}; expected a run that ended before its end"):
        started_again(run, run.parents[1], {})


def test_run_that_cannot_be_started_again_says_why(run: Path, tmp_path: Path) -> None:
    (tmp_path / "code/fsdp/multi_gpu.slurm").unlink()
    with pytest.raises(InputError, match=r"launcher .* is no longer there"):
        started_again(run, run.parents[1], {})
    (run / ".launcher").unlink()
    with pytest.raises(InputError, match=r"\.launcher.*expected a run of this version"):
        started_again(run, run.parents[1], {})
    with pytest.raises(InputError, match=r"no run\.json there"):
        started_again(tmp_path / "nowhere", run.parents[1], {})
