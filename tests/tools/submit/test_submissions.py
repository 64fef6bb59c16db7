"""A list of runs says what was meant, or which line is wrong."""

from pathlib import Path

import pytest

from tests.exercise_folder import make_exercise
from tools.errors import LogError
from tools.submit import submitted
from tools.submit.submissions import every_list, read_argument, read_list
from workshop.record.exercises import REPO


@pytest.mark.parametrize(
    ("line", "found", "expected"),
    [
        ("TRAIN_SIZ=9 run.slurm", "TRAIN_SIZ", "did you mean TRAIN_SIZE?"),
        ("LOG_DIR=x run.slurm", "LOG_DIR", "one of "),
        ("-N2 run.slurm", "-N2", "an sbatch option as --name=value"),
        ("run.slurm ds_configs/zero9.json", "ds_configs/zero9.json", "a configuration of ex: ds_configs/zero1.json"),
        ("run.slurm 'ds", "run.slurm 'ds", "a shell line"),
        ("# run.slurm", "no run", "a line as fsdp/multi_gpu.slurm"),
    ],
)
def test_a_mistake_is_named_with_its_line(tmp_path: Path, line: str, found: str, expected: str) -> None:
    with pytest.raises(LogError) as error:
        read_list(make_exercise(tmp_path, f"\ufeff# comment\n\n{line}\n") / "submit.txt", {})
    assert (error.value.line, error.value.found) == (None if found == "no run" else 3, found)
    assert expected in error.value.expected


LISTS = [*every_list(), *sorted(REPO.glob("logs/reference/*/runs.txt"))]


@pytest.mark.parametrize("path", LISTS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_every_list_has_no_run_twice(path: Path) -> None:
    lines = read_list(path, {})
    assert len(lines) == len({(line.exercise, line.text) for line in lines}) > 0


def test_a_line_names_its_configuration_and_model_as_the_readmes_do() -> None:
    """From the repository on, and as arguments: else a plan is about another configuration and a smaller model."""
    lines = read_list(REPO / "logs/reference/h200x2/runs.txt", {})
    line = next(line for line in lines if line.settings.get("DS_CONFIG"))
    assert line.config_path == (REPO / "deepspeed-multi-gpu/ds_configs/zero0.json").resolve()
    argument = read_argument("BF16=true sbatch --nodes=1 fsdp/multi_gpu.slurm fsdp/fsdp_configs/ddp.json", {})
    assert argument.config_path == REPO / "fsdp/fsdp_configs/ddp.json"
    settings, _ = submitted.read_as_job(line)
    assert (settings.model_name, settings.max_steps) == ("bigscience/bloom-7b1", 4)
