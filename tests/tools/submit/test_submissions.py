"""A submit.txt says what was meant, or which line is wrong."""

from pathlib import Path

import pytest

from tests.exercise_folder import make_exercise
from tools.errors import LogError
from tools.submit.submissions import Submission, exercise_files, read
from tools.tables.repository import ROOT


def only(tmp_path: Path, line: str, shell: dict[str, str] | None = None, extra: tuple[str, ...] = ()) -> Submission:
    exercise = make_exercise(tmp_path, f"# comment\n\n{line}\n")
    (found,) = read(exercise / "submit.txt", shell or {}, extra)
    return found


def test_a_line_is_settings_options_launcher_arguments(tmp_path: Path) -> None:
    line = "TRAIN_SIZE=9 NCCL_DEBUG=INFO --mem=2G --gpus-per-node=2 run.slurm ds_configs/zero1.json # why"
    found = only(tmp_path, line)
    assert found.settings == {"TRAIN_SIZE": "9", "NCCL_DEBUG": "INFO"}
    assert found.options == ("--mem=2G", "--gpus-per-node=2")
    assert (found.launcher, found.arguments) == ("run.slurm", ("ds_configs/zero1.json",))
    assert (found.place, found.count("gpus-per-node"), found.count("nodes")) == ("ex/submit.txt:3", 2, 1)


@pytest.mark.parametrize("name", ["submit.txt", "env_vars.sh"])
def test_file_that_is_not_in_utf8_is_an_error_that_names_the_line(tmp_path: Path, name: str) -> None:
    file = make_exercise(tmp_path, "run.slurm\n") / name
    line = file.read_bytes().count(b"\n") + 1
    file.write_bytes(file.read_bytes() + b"# f\xfcr zwei GPUs\nlast\n")
    with pytest.raises(LogError, match=rf"{name}:{line}: found '# für zwei GPUs', expected a line in UTF-8"):
        read(file.parent / "submit.txt", {})


def test_more_memory_for_the_next_try_is_still_the_same_run(tmp_path: Path) -> None:
    found = only(tmp_path, "TRAIN_SIZE=9 FP16=false --mem=2G --gpus-per-node=2 run.slurm", extra=("--gpus-per-node=4",))
    assert found.text == "FP16=false TRAIN_SIZE=9 --gpus-per-node=4 run.slurm"
    assert found.count("gpus-per-node") == 4


def test_the_shell_wins_and_makes_another_run(tmp_path: Path) -> None:
    shell = {"TRAIN_SIZE": "1", "DATASET": "/data/mine.json", "FLAVOUR": "new", "LOG_DIR": "/x", "HOME": "/root"}
    found = only(tmp_path, "TRAIN_SIZE=9 run.slurm", shell)
    assert found.settings == {"TRAIN_SIZE": "1", "DATASET": "/data/mine.json", "FLAVOUR": "new"}
    assert found.text == "DATASET=/data/mine.json FLAVOUR=new TRAIN_SIZE=1 run.slurm"


@pytest.mark.parametrize(
    ("line", "found", "expected"),
    [
        ("TRAIN_SIZ=9 run.slurm", "TRAIN_SIZ", "did you mean TRAIN_SIZE?"),
        ("LOG_DIR=x run.slurm", "LOG_DIR", "one of "),
        ("--nodes 2 run.slurm", "2", "a launcher of ex: run.slurm"),
        ("-N2 run.slurm", "-N2", "an sbatch option as --name=value"),
        ("--mem=2G", "no launcher", "a launcher of ex: run.slurm"),
        ("walk.slurm", "walk.slurm", "a launcher of ex: run.slurm"),
        ("run.slurm ds_configs/zero9.json", "ds_configs/zero9.json", "a configuration of ex: ds_configs/zero1.json"),
        ("run.slurm 'ds", "run.slurm 'ds", "a shell line"),
    ],
)
def test_a_mistake_is_named_with_its_line(tmp_path: Path, line: str, found: str, expected: str) -> None:
    with pytest.raises(LogError) as error:
        only(tmp_path, line)
    assert (error.value.line, error.value.found) == (3, found)
    assert expected in error.value.expected


LISTS = [*exercise_files([]), *sorted(ROOT.glob("logs/reference/*/runs.txt"))]


@pytest.mark.parametrize("path", LISTS, ids=lambda path: path.parent.name)
def test_every_list_of_the_workshop_can_be_read_and_has_no_run_twice(path: Path) -> None:
    runs = [(line.exercise, line.text) for line in read(path, {})]
    assert len(runs) == len(set(runs)) > 0


def test_a_list_outside_the_exercises_names_the_exercise_of_each_run(tmp_path: Path) -> None:
    path = tmp_path / "runs.txt"
    path.write_text("MAX_STEPS=2 --gpus-per-node=2 fsdp/multi_gpu.slurm fsdp_configs/ddp.json\nfsdp/walk.slurm\n")
    with pytest.raises(LogError) as error:
        read(path, {})
    assert (error.value.line, error.value.found) == (2, "fsdp/walk.slurm")
    path.write_text(path.read_text().splitlines()[0])
    (line,) = read(path, {})
    assert (line.exercise, line.launcher) == (ROOT / "fsdp", "multi_gpu.slurm")
    assert line.arguments == ("fsdp_configs/ddp.json",)
    assert line.place == f"{tmp_path.name}/runs.txt:1 (fsdp)"
