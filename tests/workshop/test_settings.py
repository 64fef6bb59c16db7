"""Settings come from one place and a mistake in them stops the run with the file, the line and the variable."""

import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from tests.workshop.environment import ENVIRONMENT
from workshop.run_folder.errors import InputError
from workshop.run_folder.exercises import exercises_with
from workshop.run_folder.settings import DeclaredSettings
from workshop.settings import Settings
from workshop.training.models import find_gpu

REPO = Path(__file__).parents[2]


def test_K1_batch_size_reaches_the_training() -> None:
    settings = Settings.from_environment(ENVIRONMENT | {"BATCH_SIZE": "7", "GRAD_ACC": "3"})
    assert (settings.batch_size, settings.grad_acc) == (7, 3)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("export PER_DEVICE_BATCH_SIZE=8", r"env_vars.sh:3: .*PER_DEVICE_BATCH_SIZE.*did you mean"),
        ("export HIDDEN_SIZE=2048", "nothing in this exercise reads HIDDEN_SIZE"),
        ("BATCH_SIZE=8", "env_vars.sh:3: BATCH_SIZE is assigned without `export`"),
    ],
    ids=["misspelt", "of another exercise", "without export"],
)
def test_K1_line_of_the_env_file_that_has_no_effect_is_an_error_naming_it(
    tmp_path: Path, line: str, words: str
) -> None:
    env_file = tmp_path / "env_vars.sh"
    env_file.write_text(f"# sizes\nexport NCCL_DEBUG=WARN\n{line}\n")
    with pytest.raises(InputError, match=words):
        Settings.from_environment(ENVIRONMENT, env_file)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("TRAIN_SIZE", "five hundred", "a whole number of at least 1"),
        ("TRAIN_SIZE", "0", "a whole number of at least 1"),
        ("LEARNING_RATE", "-1", "a number of at least 0"),
        ("LEARNING_RATE", "nan", "a number of at least 0"),
        ("FP16", "yes please", "true or false"),
        ("PADDING", "longest", "max_length or dynamic"),
    ],
)
def test_bad_value_names_file_line_variable_and_expectation(
    tmp_path: Path, name: str, value: str, expected: str
) -> None:
    env_file = tmp_path / "env_vars.sh"
    env_file.write_text(f"# first line\nexport {name}='{value}'\n")
    with pytest.raises(InputError) as error:
        Settings.from_environment(ENVIRONMENT | {name: value}, env_file)
    assert str(error.value) == f"{name}='{value}' ({env_file}:2, or set in your shell): expected {expected}"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"BF16": "true"}, "FP16=true and BF16=true"),
        ({"GENERATE_BEFORE": "true", "GENERATE_SIZE": "0"}, "GENERATE_BEFORE=true and GENERATE_SIZE=0"),
        ({"GENERATE_STEPS": "5", "GENERATE_SIZE": "0"}, "GENERATE_STEPS=5 and GENERATE_SIZE=0"),
        ({"RUN_DIR": ""}, "RUN_DIR is not set; start the training through its launcher"),
        ({"EXPERIMENT_NAME": "../../x"}, r"EXPERIMENT_NAME='\.\./\.\./x': expected a folder's name"),
        ({"EXPERIMENT_NAME": "/tmp/x"}, "EXPERIMENT_NAME='/tmp/x': expected a folder's name"),
        ({"EXPERIMENT_NAME": "x\n"}, r"EXPERIMENT_NAME='x\\n': expected a folder's name"),
        ({"MODEL_NAME": ""}, "MODEL_NAME is not set; expected `export MODEL_NAME=…` in env_vars.sh"),
    ],
)
def test_settings_that_do_not_fit_together_or_lack_are_an_error(changes: dict[str, str], words: str) -> None:
    with pytest.raises(InputError, match=words):
        Settings.from_environment(ENVIRONMENT | changes)


@pytest.mark.parametrize("exercise", exercises_with("env_vars.sh"), ids=lambda folder: folder.name)
def test_every_exercise_lets_the_shell_win(exercise: Path) -> None:
    for line in (exercise / "env_vars.sh").read_text().splitlines():
        if match := re.match(r"export (\w+)=", line):
            assert line.startswith(f'export {match[1]}="${{{match[1]}:-'), line


def test_all_ranks_train_in_fp32_without_a_gpu_and_one_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    for rank in range(4):
        monkeypatch.setenv("RANK", str(rank))
        assert not find_gpu(Settings.from_environment(ENVIRONMENT | {"FP16": "true"}, Path("none")))
    assert capsys.readouterr().out.count("warning: FP16=true needs a GPU") == 1


def test_run_goes_on_although_a_link_leads_to_its_folder(tmp_path: Path) -> None:
    """As a home folder's may: the launcher names the checkpoint without links, and all was measured as of a new run."""
    (tmp_path / "link").symlink_to("real")
    run = ENVIRONMENT | {"RUN_DIR": str(tmp_path / "link"), "OUTPUT_DIR": "out"}
    for folder, goes_on in (("out", True), ("other", False)):
        checkpoint = tmp_path / "real" / folder / "checkpoint-8"
        checkpoint.mkdir(parents=True)
        (checkpoint / "trainer_state.json").touch()
        assert Settings.from_environment(run | {"RESUME_FROM": str(checkpoint)}).goes_on == goes_on


def test_every_setting_is_listed_with_its_reader_what_it_takes_and_its_default() -> None:
    command = [sys.executable, "-m", "workshop.run_folder.settings"]
    listed = subprocess.run(command, cwd=REPO, capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(listed) - 1 == len(Settings.__dataclass_fields__) - 2, "all but RUN_DIR and CONFIG"
    assert f"{'SAVE':24} training     steps or epoch or end or no; default: steps" in listed
    assert f"{'BATCH_SIZE':24} the Trainer  a whole number of at least 1; default: in env_vars.sh" in listed
    assert all(item.metadata["by"] for item in fields(DeclaredSettings) if item.name not in ("run_dir", "config"))
