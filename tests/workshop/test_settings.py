"""Settings come from one place and a mistake in them stops the run with the file, the line and the variable."""

from pathlib import Path

import pytest

from tests.workshop.environment import ENVIRONMENT
from workshop.record.errors import InputError
from workshop.settings.settings import Settings


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("export PER_DEVICE_BATCH_SIZE=8", r"env_vars.sh:3: .*PER_DEVICE_BATCH_SIZE.*did you mean"),
        ("export HIDDEN_SIZE=2048", "nothing in this exercise reads HIDDEN_SIZE"),
        ("BATCH_SIZE=8", "env_vars.sh:3: BATCH_SIZE is assigned without `export`"),
    ],
    ids=["misspelt", "of another exercise", "without export"],
)
def test_K1_line_of_the_env_file_without_effect_is_an_error(tmp_path: Path, line: str, words: str) -> None:
    env_file = tmp_path / "env_vars.sh"
    env_file.write_text(f"# sizes\nexport NCCL_DEBUG=WARN\n{line}\n")
    with pytest.raises(InputError, match=words):
        Settings.from_environment(ENVIRONMENT, env_file)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("TRAIN_SIZE", "0", "a whole number of at least 1"),
        ("LEARNING_RATE", "-1", "a number of at least 0"),
        ("FP16", "yes please", "true or false"),
        ("PADDING", "longest", "max_length or dynamic"),
    ],
)
def test_bad_value_names_file_line_and_variable(tmp_path: Path, name: str, value: str, expected: str) -> None:
    env_file = tmp_path / "env_vars.sh"
    env_file.write_text(f"# first line\nexport {name}='{value}'\n")
    with pytest.raises(InputError) as error:
        Settings.from_environment(ENVIRONMENT | {name: value}, env_file)
    assert str(error.value) == f"{name}='{value}' ({env_file}:2, or set in your shell): expected {expected}"


def test_run_is_resumed_although_a_link_leads_to_its_folder(tmp_path: Path) -> None:
    """As a home folder's may: the launcher names the checkpoint without links, and all was measured as of a new run."""
    (tmp_path / "link").symlink_to("real")
    run = ENVIRONMENT | {"RUN_DIR": str(tmp_path / "link"), "OUTPUT_DIR": "out"}
    for folder, resumes in (("out", True), ("other", False)):
        checkpoint = tmp_path / "real" / folder / "checkpoint-8"
        checkpoint.mkdir(parents=True)
        (checkpoint / "trainer_state.json").touch()
        assert Settings.from_environment(run | {"RESUME_FROM": str(checkpoint)}).resumes_own_run == resumes
