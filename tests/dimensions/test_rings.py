"""Context and pipeline parallelism train what one process trains and send what the formulas say."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from dimension_settings import DimensionSettings
from pp import Stage
from torch.distributed import checkpoint
from torch.nn.functional import cross_entropy
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from custom_model.model import SimpleGPTConfig, SimpleGPTModel
from tests.dimensions.faults import CP_FAULTS, PP_FAULTS, ULYSSES_FAULTS
from tests.dimensions.test_tp import EXACT, counted, proof
from tests.launching import REPO, losses, record
from tests.trainings_on_ranks import Ranks, Training, training
from workshop.errors import WorkshopError

ROWS, LENGTH, HIDDEN, VOCABULARY = 8, 64, 64, 1024  # rows: of a step
STEPS, FEW_STEPS = "20", "4"  # the last step is not counted: the proof gathers its gradients
TOKENS = torch.arange(LENGTH)[None]
SETTINGS = {
    **{"TRAIN_SIZE": "40", "EVAL_SIZE": "4", "NUM_EPOCHS": "4", "LABELS": "text", "MAX_LENGTH": str(LENGTH)},
    **{"LEARNING_RATE": "2e-4", "WEIGHT_DECAY": "0.01", "VOCAB_SIZE": str(VOCABULARY), "HIDDEN_SIZE": str(HIDDEN)},
    **{"NUM_HEADS": "4", "FF_DIM": "128", "SEQ_LENGTH": str(LENGTH), "MAX_STEPS": STEPS},
}
LONG_ROWS = {"GRADIENT_CHECKPOINTING": "true", "LOSS_CHUNK": "24"}
GPIPE, ONE_F_ONE_B, INTERLEAVED = ({"SCHEDULE": name} for name in ("gpipe", "1f1b", "interleaved"))
FEW = {"MAX_STEPS": FEW_STEPS}
Run = tuple[str, str, dict[str, str]]  # script, model and own settings
TWO_RANKS: dict[str, Run] = {
    "cp, gpt": ("cp", "small gpt", FEW | {"GRAD_ACC": "2"}),
    "cp, llama, long rows": ("cp", "small llama", LONG_ROWS),
    "ulysses, gpt": ("ulysses", "small gpt", FEW | {"GRAD_ACC": "2"}),
    "ulysses, llama, long rows": ("ulysses", "small llama", LONG_ROWS),
    "gpipe, gpt": ("pp", "gpt", GPIPE | {"SAVE": "end"}),
    "gpipe, llama": ("pp", "llama", GPIPE | FEW),
    "1f1b, untied gpt": ("pp", "untied gpt", ONE_F_ONE_B | FEW),
    "1f1b, tied llama, long rows": ("pp", "tied llama", ONE_F_ONE_B | LONG_ROWS),
    "interleaved, gpt": ("pp", "gpt", INTERLEAVED | FEW),
    "interleaved, llama": ("pp", "llama", INTERLEAVED | FEW | {"SAVE": "end"}),
    "interleaved, tied llama": ("pp", "tied llama", INTERLEAVED | FEW | {"SAVE": "end"}),
}
FOUR_RANKS: dict[str, Run] = {
    "cp on 4, gpt": ("cp", "small gpt", FEW),
    "cp on 4, llama": ("cp", "small llama", FEW),
    "dp x cp, llama": ("cp", "small llama", FEW | {"CP_SIZE": "2"}),
    "dp x pp, tied llama": ("pp", "tied llama", FEW | ONE_F_ONE_B | {"PP_SIZE": "2"}),
}
WITH_FAULTS: dict[str, Run] = {
    **{name: ("cp", "small llama", FEW | {"FAULT": name}) for name in CP_FAULTS},
    **{name: ("ulysses", "small llama", FEW | {"FAULT": name}) for name in ULYSSES_FAULTS},
    **{name: ("pp", "tied llama", FEW | ONE_F_ONE_B | {"FAULT": name}) for name in PP_FAULTS},
}
TENSOR: dict[str, Run] = {"tp": ("tp", "tied llama", FEW | {"SAVE": "end"})}
RUNS = TWO_RANKS | FOUR_RANKS


def layers(model: str) -> int:
    return 2 if "small" in model else 4


def reference_of(name: str) -> str:
    _, model, own = (RUNS | WITH_FAULTS)[name]
    return f"one, {model}, {own.get('MAX_STEPS', STEPS)} steps"


@pytest.fixture(scope="module")
def runs(ranks: Ranks, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run folders by the names above; as `reference_of` says, those of by-hand/ddp.py on one rank."""
    folder = tmp_path_factory.mktemp("rings")
    shape = json.loads((REPO / "workshop/shapes/tiny-llama.json").read_text())
    for name in ("llama", "tied llama", "small llama"):
        (folder / name).mkdir()
        # Weights five times the usual: else every attention is an average, whatever it sees.
        own = {"initializer_range": 0.1, "tie_word_embeddings": "tied" in name, "num_hidden_layers": layers(name)}
        (folder / name / "config.json").write_text(json.dumps(shape | own))

    def run(name: str, case: Run, exercise: str = "dimensions") -> Training:
        script, model, own = case
        micro_batches = int(own.get("GRAD_ACC", "4" if script == "pp" else "1"))
        groups = 2 if own.get("CP_SIZE", own.get("PP_SIZE")) else 1
        rows = {"GRAD_ACC": str(micro_batches), "BATCH_SIZE": str(ROWS // micro_batches // groups)}
        named = {"MODEL_NAME": "simple-gpt" if "gpt" in model else str(folder / model), "MODEL_INIT": "random"}
        named |= {"NUM_LAYERS": str(layers(model))} | ({"UNTIED": "true"} if "untied" in model else {})
        command = [Path(__file__).with_name("run_and_record.py"), script]
        return training(folder / name, exercise, "", command, **SETTINGS | own | rows | named)

    references = {reference_of(name): case for name, case in (RUNS | WITH_FAULTS).items()}
    alone = {name: ("ddp", model, {"MAX_STEPS": name.split()[-2]}) for name, (_, model, _) in references.items()}
    ranks.train([run(name, case, "by-hand") for name, case in alone.items()], ranks=1)
    ranks.train([run(name, case) for name, case in (TWO_RANKS | WITH_FAULTS | TENSOR).items()])
    ranks.train([run(name, case) for name, case in FOUR_RANKS.items()], ranks=4)
    return folder


def differences(runs: Path, name: str) -> dict[str, float]:
    """What is further from the reference than EXACT, relative to it: losses, norms, gradients and weights."""
    reference, run = runs / reference_of(name), runs / name
    expected, far, keys = proof(reference), {}, set()

    def compare(what: str, ours: torch.Tensor, theirs: torch.Tensor) -> None:
        if not (distance := ((ours - theirs).norm() / theirs.norm()).item()) <= EXACT:
            far[what] = distance

    compare("losses", torch.tensor(losses(run)), torch.tensor(losses(reference)))
    for found in (proof(run, rank) for rank in range(record(run)["world_size"])):
        compare("norms", torch.tensor(found["norms"]), torch.tensor(expected["norms"]))
        gradients = zip(("first", "last"), found["gradients"], expected["gradients"], strict=True)
        for kind, ours, theirs in (("weights", found["weights"], expected["weights"]), *gradients):
            keys |= ours.keys()
            for key, tensor in ours.items():
                compare(f"{kind}: {key}", tensor, theirs[key])
    assert keys == expected["weights"].keys()
    return far


@pytest.mark.parametrize("name", RUNS)
def test_training_is_that_of_one_process(runs: Path, name: str) -> None:
    reference = losses(runs / reference_of(name))
    if len(reference) == int(STEPS):
        assert reference[-1] < reference[0] - 0.02, "hardly a training: the comparison would prove nothing"
    assert differences(runs, name) == {}


@pytest.mark.parametrize("name", WITH_FAULTS)
def test_proof_sees_a_planted_error(runs: Path, name: str) -> None:
    assert differences(runs, name) != {}


@pytest.mark.parametrize("name", [*TWO_RANKS, "cp on 4, gpt", "cp on 4, llama", "dp x cp, llama"])
def test_predicted_bytes_are_those_that_are_counted(runs: Path, name: str) -> None:
    """Of a ring keys, values and their gradients, of a pipeline what passes the borders of its stages.

    Beside the formula: the norm, the loss and the number of targets.
    """
    figures = counted(runs / name).figures
    assert figures.sent_mib == pytest.approx(figures.predicted_sent_mib, rel=0.002)
    assert figures.sent_mib > figures.predicted_sent_mib


def test_bubble_and_imbalance_are_predicted(runs: Path) -> None:
    found = {name: record(runs / name)["sharding"] for name in ("gpipe, gpt", "interleaved, gpt")}
    assert found["gpipe, gpt"]["bubble"] == pytest.approx(1 / (4 + 1))
    assert found["interleaved, gpt"]["bubble"] == pytest.approx(1 / (2 * 4 + 1))
    size = record(runs / "gpipe, gpt")["model"]
    half, head = size["block_parameters"] / 2, VOCABULARY * HIDDEN
    assert found["gpipe, gpt"]["imbalance"] == pytest.approx(2 * (half + head) / (2 * half + head))


def untrained(runs: Path, model: str) -> PreTrainedModel:
    if "gpt" not in model:
        return AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(runs / model))
    sizes = {name.lower(): int(SETTINGS[name]) for name in ("VOCAB_SIZE", "HIDDEN_SIZE", "NUM_HEADS")}
    return SimpleGPTModel(
        SimpleGPTConfig(**sizes, num_layers=layers(model), ff_dim=int(SETTINGS["FF_DIM"]), seq_length=LENGTH)
    )


def logits(model: PreTrainedModel) -> torch.Tensor:
    with torch.no_grad():
        return model(TOKENS).logits


def checkpoint_into(weights: dict[str, torch.Tensor], run: Path) -> None:
    checkpoint.load(weights, checkpoint_id=run / "bloom-qa-finetuned", no_dist=True)


@pytest.mark.parametrize(
    ("name", "reference"),
    [
        *((name, reference_of(name)) for name in ("gpipe, gpt", "interleaved, llama", "interleaved, tied llama")),
        ("tp", f"one, tied llama, {FEW_STEPS} steps"),
    ],
)
def test_checkpoint_of_several_ranks_opens_in_one_process(runs: Path, name: str, reference: str) -> None:
    _, model_name, _ = (RUNS | TENSOR)[name]
    opened, expected = untrained(runs, model_name), untrained(runs, model_name)
    expected.load_state_dict(torch.load(runs / reference / "proof-0.pt")["weights"])
    checkpoint_into(dict(opened.named_parameters()), runs / name)
    assert (logits(opened) - logits(expected)).norm() <= 1e-4 * logits(expected).norm()


def test_checkpoint_of_tensor_parallelism_opens_in_a_pipeline(runs: Path) -> None:
    whole = untrained(runs, "tied llama")
    checkpoint_into(dict(whole.named_parameters()), runs / "tp")
    settings = SimpleNamespace(bf16=False, gradient_checkpointing=False, loss_chunk=0, max_length=LENGTH)
    first, last = (Stage(untrained(runs, "tied llama"), number, 2, settings) for number in (0, 1))
    checkpoint_into(first.own | last.own, runs / "tp")
    last.tied.data.copy_(first.tied.data)
    with torch.no_grad():
        loss = last(first(TOKENS), TOKENS)
    assert loss.item() == pytest.approx(cross_entropy(logits(whole)[0], TOKENS[0], reduction="sum").item(), rel=1e-5)


def test_rows_of_a_llama_may_be_longer_than_the_custom_model_knows(tmp_path: Path) -> None:
    given = training(tmp_path, "dimensions", **SETTINGS | {"MODEL_NAME": "llama-3.2-1b", "MAX_LENGTH": "65536"})
    environ = given["environ"] | {"DIMENSION": "cp", "SEQ_LENGTH": "512"}
    settings = DimensionSettings.from_environment(environ, REPO / "dimensions/env_vars.sh")
    assert settings.layout(4) == (1, 4)


@pytest.mark.parametrize(
    ("dimension", "own", "expected"),
    [
        ("cp", {"MAX_LENGTH": "60"}, "MAX_LENGTH=60 on 4 ranks per row: expected a multiple of 8"),
        ("cp", {"PADDING": "dynamic"}, "PADDING=dynamic: .* expected max_length"),
        ("pp", {"GRAD_ACC": "6"}, "GRAD_ACC=6 micro-batches with SCHEDULE=1f1b: expected a multiple of 4"),
    ],
)
def test_rows_that_the_ranks_cannot_share_are_refused(
    dimension: str, own: dict[str, str], expected: str, tmp_path: Path
) -> None:
    given = training(tmp_path, "dimensions", **SETTINGS | {"MODEL_NAME": "simple-gpt", "NUM_LAYERS": "4"} | own)
    environ = given["environ"] | {"DIMENSION": dimension}
    settings = DimensionSettings.from_environment(environ, REPO / "dimensions/env_vars.sh")
    with pytest.raises(WorkshopError, match=expected):
        settings.layout(4)
