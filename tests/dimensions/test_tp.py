"""Tensor parallelism, alone and with FSDP, trains what one process trains, and sends what the formulas say."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint import load
from transformers import AutoModelForCausalLM

from custom_model.model import SimpleGPTConfig, SimpleGPTModel
from tests.launching import REPO, losses, record
from tests.trainings_on_ranks import Ranks, Training, training
from tools.logs import communication
from tools.logs.run import Run
from tools.logs.runs import read_run
from workshop.training.models import shape_config

STEPS, EXACT = 20, 1e-5
DRIVER = Path(__file__).with_name("run_and_record.py")
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
        return training(folder / name, exercise, "", [DRIVER, script], **SIZES | {"MODEL_NAME": model} | own)

    models = sorted({model for model, _ in RUNS.values()})
    ranks.train([run(f"one, {model}", "by-hand", "ddp", model) for model in models], ranks=1)
    for count, some in ((2, TWO_RANKS), (4, FOUR_RANKS)):
        ranks.train([run(name, "dimensions", "tp", model, **own) for name, (model, own) in some.items()], ranks=count)
    return folder


def counted(run: Path) -> Run:
    """The run with the facts that the launcher would have written."""
    facts = {"exercise": "dimensions", "state": "completed", "start_time": "2026-11-24T10:00:00+00:00", "nodes": 1}
    (run / "run.json").write_text(json.dumps(facts | record(run)))
    return read_run(run)


def of_rank_0(run: Path) -> list[communication.Collective]:
    return [one for one in communication.read(run / "collectives.csv") if one.rank == 0]


def steps(run: Path, columns: tuple[str, ...]) -> list[list[str]]:
    with (run / "steps.csv").open() as file:
        return [[row[name] for name in columns] for row in csv.DictReader(file)]


def proof(run: Path, rank: int = 0) -> dict[str, Any]:
    """What run_and_record.py has left on a rank, without the biases of the GPT's keys.

    Softmax does not see them: their gradient is 0 but for rounding, which Adam makes as large as any other's.
    """
    found = torch.load(run / f"proof-{rank}.pt")
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


def test_each_layer_adds_up_four_times_and_the_bytes_are_those_of_the_formula(runs: Path) -> None:
    """Beside the formula: the norm, the loss, the targets; by positions the gradients of norms and positions."""
    for name in RUNS:
        figures = counted(runs / name).figures
        small = 0.02 if "gpt" in name and "position" in name else 0.005
        assert figures.sent_mib == pytest.approx(figures.predicted_sent_mib, rel=small), name
        assert figures.sent_mib > figures.predicted_sent_mib, name
    large = [one.calls for one in of_rank_0(runs / "gpt, two micro-batches") if one.message_bytes == 4 * 64 * 64 * 4]
    assert large == [2 * (4 * 2 + 2)]


def test_ranks_that_share_rows_count_them_once(runs: Path) -> None:
    expected = record(runs / "one, simple-gpt")
    for name, dp_size in (("gpt, two micro-batches", 1), ("gpt, FSDP, by position", 2)):
        facts = record(runs / name)
        assert facts["dp_size"] == dp_size
        assert facts["steps_per_epoch"] == expected["steps_per_epoch"]
        assert facts["flops_per_gpu_per_step"] * facts["world_size"] == expected["flops_per_gpu_per_step"]
        columns = ("tokens", "real_tokens", "samples", "epoch")
        assert steps(runs / name, columns) == steps(runs / "one, simple-gpt", columns)


@pytest.mark.parametrize(
    ("model", "told"),
    [
        ("tiny-llama", "TP_SIZE=4: llama has 2 key heads; expected a divisor"),
        ("tiny-qwen3", "found a qwen3; expected simple-gpt or a Llama"),
    ],
)
def test_model_that_cannot_be_cut_so_is_refused(ranks: Ranks, tmp_path: Path, model: str, told: str) -> None:
    run = training(tmp_path / "run", "dimensions", "", [DRIVER, "tp"], **SIZES | {"MODEL_NAME": model})
    assert 0 not in ranks.ask(trainings=[run], ranks=4)
    assert told in (tmp_path / "run/train.out").read_text()


@pytest.mark.parametrize("name", [name for name, (_, own) in RUNS.items() if "SAVE" in own])
def test_checkpoint_of_two_ranks_opens_in_one_process_as_the_same_model(runs: Path, name: str) -> None:
    if RUNS[name][0] == "simple-gpt":
        found = record(runs / name)["settings"]
        sizes = {key: found[key] for key in ("vocab_size", "hidden_size", "num_layers", "num_heads", "ff_dim")}
        models = [SimpleGPTModel(SimpleGPTConfig(**sizes, seq_length=64)) for _ in range(2)]
    else:
        models = [AutoModelForCausalLM.from_config(shape_config("tiny-llama")) for _ in range(2)]
    opened, expected = models
    load(dict(opened.named_parameters()), checkpoint_id=runs / name / "bloom-qa-finetuned", no_dist=True)
    expected.load_state_dict(torch.load(runs / f"one, {RUNS[name][0]}" / "proof-0.pt")["weights"], strict=False)
    expected.tie_weights()
    ids = torch.arange(60).view(2, 30)
    torch.testing.assert_close(opened(ids).logits, expected(ids).logits, rtol=1e-4, atol=1e-4)
    assert opened(ids).logits.std() > 0.1
