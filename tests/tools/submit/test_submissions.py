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


@pytest.mark.parametrize(
    ("line", "found", "expected"),
    [
        ("TRAIN_SIZ=9 run.slurm", "TRAIN_SIZ", "did you mean TRAIN_SIZE?"),
        ("LOG_DIR=x run.slurm", "LOG_DIR", "one of "),
        ("-N2 run.slurm", "-N2", "an sbatch option as --name=value"),
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
