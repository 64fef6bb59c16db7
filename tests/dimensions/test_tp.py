"""Tensor parallelism, alone and with FSDP, trains what one process trains, and sends what the formulas say."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.launching import REPO, losses
from tests.trainings_on_ranks import Ranks, Training, training

STEPS, EXACT = 20, 1e-5
SIZES = {
    **{
        "TRAIN_SIZE": "40",
        "EVAL_SIZE": "4",
        "NUM_EPOCHS": "4",
        "MAX_STEPS": str(STEPS),
        "BATCH_SIZE": "8",
        "GRAD_ACC": "1",
    },
    **{"LEARNING_RATE": "1e-3", "LR_WARMUP_STEPS": "5"},
    **{"MAX_LENGTH": "64", "LABELS": "text", "WEIGHT_DECAY": "0.01", "VOCAB_SIZE": "1024", "HIDDEN_SIZE": "64"},
    **{"NUM_LAYERS": "2", "NUM_HEADS": "4", "FF_DIM": "256", "SEQ_LENGTH": "64"},
}
# The model and own settings of each run. All have 8 rows per step.
TWO_RANKS = {
    "gpt, two micro-batches": ("simple-gpt", {"BATCH_SIZE": "4", "GRAD_ACC": "2", "SAVE": "end"}),
    "llama, by position": ("tiny-llama", {"SEQUENCE_PARALLEL": "true", "SAVE": "end"}),
    "tied llama, long rows": ("tied-llama", {"GRADIENT_CHECKPOINTING": "true", "LOSS_CHUNK": "24"}),
}
FOUR_RANKS = {
    "gpt, FSDP, by position": ("simple-gpt", {"TP_SIZE": "2", "BATCH_SIZE": "4", "SEQUENCE_PARALLEL": "true"}),
}
RUNS = TWO_RANKS | FOUR_RANKS


@pytest.fixture(scope="module")
def runs(ranks: Ranks, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run folders by the names above, and by the models' names those of by-hand/ddp.py on one rank."""
    folder = tmp_path_factory.mktemp("tp")
    shape = json.loads((REPO / "workshop/shapes/tiny-llama.json").read_text())
    (folder / "tied-llama").mkdir()
    (folder / "tied-llama/config.json").write_text(json.dumps(shape | {"tie_word_embeddings": True}))

    def run(name: str, exercise: str, script: str, model: str, **own: str) -> Training:
        model = str(folder / model) if model == "tied-llama" else model
        command = [Path(__file__).with_name("run_and_record.py"), script]
        return training(folder / name, exercise, "", command, **SIZES | {"MODEL_NAME": model} | own)

    models = sorted({model for model, _ in RUNS.values()})
    ranks.train([run(f"one, {model}", "by-hand", "ddp", model) for model in models], ranks=1)
    for count, some in ((2, TWO_RANKS), (4, FOUR_RANKS)):
        ranks.train([run(name, "dimensions", "tp", model, **own) for name, (model, own) in some.items()], ranks=count)
    return folder


def proof(run: Path) -> dict[str, Any]:
    """What run_and_record.py has left, without the biases of the GPT's keys.

    Softmax does not see them: their gradient is 0 but for rounding, which Adam makes as large as any other's.
    """
    found = torch.load(run / "proof-0.pt")
    for tensors in (found["weights"], *found["gradients"]):
        for name in tensors:
            if name.endswith("qkv_proj.bias"):
                tensors[name] = tensors[name].unflatten(0, (-1, 3, 16))[:, [0, 2]]
    return found


@pytest.mark.parametrize("name", RUNS)
def test_training_is_that_of_one_process(runs: Path, name: str) -> None:
    reference = runs / f"one, {RUNS[name][0]}"
    expected, found = proof(reference), proof(runs / name)
    assert losses(runs / name) == pytest.approx(losses(reference), rel=EXACT)
    assert losses(reference)[-1] < losses(reference)[0] - 0.1, "hardly a training: the comparison would prove nothing"
    assert found["norms"] == pytest.approx(expected["norms"], rel=EXACT)
    assert len(found["norms"]) == STEPS
    pairs = [(found["weights"], expected["weights"]), *zip(found["gradients"], expected["gradients"], strict=True)]
    for ours, theirs in pairs:
        distance = {name: ((ours[name] - tensor).norm() / tensor.norm()).item() for name, tensor in theirs.items()}
        assert {name: far for name, far in distance.items() if not far <= EXACT} == {}
        assert ours.keys() == theirs.keys()
