"""What a job says before its training starts."""

from pathlib import Path

import pytest

from tests.launching import PATH, REPO, run
from tests.trainings_on_ranks import training


@pytest.mark.parametrize(
    ("launcher", "arguments", "told"),
    [
        (
            "baseline/baseline.slurm",
            "",
            "but REPORT_TO=none: nothing goes to Weights & Biases; set REPORT_TO=wandb for that",
        ),
        ("further/by-hand/by_hand.slurm", "ddp.py", "but nothing of this exercise goes to Weights & Biases"),
    ],
)
def test_key_without_a_reporter_is_named_in_every_exercise(
    launcher: str, arguments: str, told: str, tmp_path: Path
) -> None:
    """Exercises whose env_vars.sh has no WANDB_MODE said nothing."""
    folder = (REPO / launcher).parent
    environ = training(tmp_path, folder.name)["environ"] | {"WANDB_API_KEY": "planted", "WANDB_MODE": "offline"}
    environ |= {"LAUNCHER": str(REPO / launcher), "LAUNCHER_ARGUMENTS": arguments}
    environ |= {"PATH": PATH, "PYTHONPATH": f"{REPO}:{REPO}/further/by-hand"}
    said = run("python", "-m", "workshop.job.preflight", cwd=folder, **environ).stderr
    assert f"warning: WANDB_API_KEY set, {told}\n" in said
