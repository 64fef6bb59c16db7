"""Find variables of the shell that are nearly a setting's name: typing mistakes.

Older material exported BATCH_SIZE and read PER_DEVICE_BATCH_SIZE, so every run there used batch 1 (erratum K1).
"""

from collections.abc import Mapping
from difflib import get_close_matches

from workshop.record.errors import InputError
from workshop.record.exercises import REPO, exercises_with, readers_only
from workshop.settings.env_file import exported
from workshop.settings.settings import LAUNCHER_NAMES, defaults

# Read by the launchers before any env_vars.sh, which therefore cannot set them.
_OF_LAUNCHERS = {"GPUS_PER_NODE", "EMULATED_NODES", "DS_CONFIG", "FABRIC_TIMEOUT_S", "WORKSHOP_VENV"}
# Set by a launcher for the training, never by users.
_SET_BY_LAUNCHERS = {"CONFIG", "RUN_DIR"}
# Names of older material and of the Trainer.
_OTHER_NAMES = {
    "PER_DEVICE_BATCH_SIZE": "BATCH_SIZE",
    "PER_DEVICE_TRAIN_BATCH_SIZE": "BATCH_SIZE",
    "GRADIENT_ACCUMULATION_STEPS": "GRAD_ACC",
    "NUM_TRAIN_EPOCHS": "NUM_EPOCHS",
    "EPOCHS": "NUM_EPOCHS",
    "GRAD_ACC_STEPS": "GRAD_ACC",
    "GRADIENT_ACCUMULATION": "GRAD_ACC",
    "PER_DEVICE_EVAL_BATCH_SIZE": "EVAL_BATCH_SIZE",
    "SUBSET_SIZE": "TRAIN_SIZE",
    "MAX_SEQ_LENGTH": "MAX_LENGTH",
    "MODEL_ID": "MODEL_NAME",
}
# Usual variables that resemble a setting.
_UNRELATED = {"COMPILER", "LABEL", "NUM_THREADS"}


def setting_names() -> set[str]:
    """Return every variable that an exercise reads: settings, and exports of an env_vars.sh or tiny.env."""
    files = [folder / "env_vars.sh" for folder in exercises_with("env_vars.sh")]
    files += [REPO / "tiny.env", REPO / "cluster.env.example"]
    return {*defaults(), *LAUNCHER_NAMES, *readers_only(), *_OF_LAUNCHERS}.union(*map(exported, files))


def check_shell(shell: Mapping[str, str]) -> None:
    """Raises InputError for variables that nothing reads and that resemble a setting or have its older name."""
    known, asked = setting_names(), {}
    for name in sorted(shell.keys() - known - _UNRELATED):
        alike = [setting for setting in known - _SET_BY_LAUNCHERS if setting[0] == name[0].upper()]
        # One letter of four too many has a ratio of 0.89, two of eight exchanged 0.88.
        if meant := get_close_matches(name.upper(), alike, n=1, cutoff=0.86) or _OTHER_NAMES.get(name, "").split():
            asked[name] = f"{name}={shell[name]} (did you mean {meant[0]}?)"
    if asked:
        unset = f"where it is not meant for the workshop, `unset {' '.join(asked)}`"
        raise InputError(f"your shell sets {', '.join(asked.values())}: nothing reads it; {unset}")
