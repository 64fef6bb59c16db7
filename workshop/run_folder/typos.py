"""Find variables of the shell that are nearly a setting's name: typing mistakes.

Older material exported BATCH_SIZE and read PER_DEVICE_BATCH_SIZE, so every run there used batch 1 (erratum K1).
"""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches

# Read by the launchers before any env_vars.sh, which therefore cannot set them.
_LAUNCHER_NAMES = {"GPUS_PER_NODE", "EMULATED_NODES", "DS_CONFIG", "FABRIC_TIMEOUT_S", "WORKSHOP_VENV", "LOG_DIR"}
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
# Short names that may be meant for the workshop or for other programs.
MEANT = {"MODEL": "MODEL_NAME", "LR": "LEARNING_RATE", "GPUS": "GPUS_PER_NODE", "NPROC": "GPUS_PER_NODE"}
# Usual variables that resemble a setting.
_UNRELATED = {"COMPILER", "LABEL", "NUM_THREADS"}
_LEAST_ALIKE = 0.86  # difflib's ratio: one letter of four too many is 0.89, two of eight exchanged 0.88


def near_misses(shell: Mapping[str, str], settings: Iterable[str]) -> dict[str, str]:
    """Return the shell's unread variables, each with the setting that it resembles; the first letter must be right."""
    known = {*settings, *_LAUNCHER_NAMES}
    aims = known - _SET_BY_LAUNCHERS
    found = {}
    for name in sorted(set(shell) - known - _SET_BY_LAUNCHERS - _UNRELATED):
        alike = [aim for aim in aims if aim[0] == name[0].upper()]
        close = get_close_matches(name.upper(), alike, n=1, cutoff=_LEAST_ALIKE)
        meant = close[0] if close else _OTHER_NAMES.get(name)
        if meant in aims:
            found[name] = meant
    return found


def complaint(shell: Mapping[str, str], settings: Iterable[str]) -> str:
    """Return one line about all near misses; "" if there is none."""
    found = near_misses(shell, settings)
    if not found:
        return ""
    asked = ", ".join(f"{name}={shell[name]} (did you mean {meant}?)" for name, meant in found.items())
    return (
        f"your shell sets {asked}: nothing reads it; where it is not meant for the workshop, `unset {' '.join(found)}`"
    )


def doubt(shell: Mapping[str, str]) -> str:
    """Return one line about short names that nothing reads; "" if there is none."""
    asked = [f"{name}={shell[name]} (for the workshop it is {MEANT[name]})" for name in MEANT if name in shell]
    return f"warning: your shell sets {', '.join(asked)}: nothing here reads it" if asked else ""
