"""The other dimensions train what one process trains, send what the formulas say, and open each other's checkpoints."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from pp import Stage
from torch.distributed import checkpoint
from torch.nn.functional import cross_entropy
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from custom_model.model import SimpleGPTConfig, SimpleGPTModel
from tests.launching import REPO, losses, record, steps
from tests.trainings_on_ranks import Ranks, Training, counted, training
from tools.logs.figures import value_of

STEPS, EXACT = 6, 1e-5
ROWS, LENGTH, HIDDEN, VOCABULARY, HEAD_SIZE = 8, 64, 32, 1024, 8  # rows: of a step
TOKENS = torch.arange(LENGTH)[None]
SETTINGS = {
    **{"TRAIN_SIZE": "40", "EVAL_SIZE": "4", "NUM_EPOCHS": "4", "LABELS": "text", "MAX_LENGTH": str(LENGTH)},
    **{"LEARNING_RATE": "1e-3", "LR_WARMUP_STEPS": "2", "WEIGHT_DECAY": "0.01", "MAX_STEPS": str(STEPS)},
    **{"VOCAB_SIZE": str(VOCABULARY), "HIDDEN_SIZE": str(HIDDEN), "NUM_HEADS": str(HIDDEN // HEAD_SIZE)},
    **{"FF_DIM": "64", "SEQ_LENGTH": str(LENGTH), "MODEL_INIT": "random"},
}
# Weights five times the usual: else every attention is an average, whatever it sees.
LLAMA = {"hidden_size": HIDDEN, "intermediate_size": 64, "initializer_range": 0.1}
LONG_ROWS = {"GRADIENT_CHECKPOINTING": "true", "LOSS_CHUNK": "24"}
GPIPE, ONE_F_ONE_B, INTERLEAVED = ({"SCHEDULE": name} for name in ("gpipe", "1f1b", "interleaved"))
BY_POSITION, SAVED = {"SEQUENCE_PARALLEL": "true"}, {"SAVE": "end"}
# Rows of 64 tokens are full; longer ones have padding, which the auxiliary loss leaves out.
OF_REFERENCES = {"mixture": {"GRAD_ACC": "2"}, "mixture, padded": {"MAX_LENGTH": "192"}}
LAYERS = {"deep": 4, "flat": 1}  # of the models so called; the others have 2
Case = tuple[str, str, dict[str, str]]  # script, model and own settings
TWO_RANKS: dict[str, Case] = {
    "tp, gpt": ("tp", "gpt", SAVED | {"GRAD_ACC": "2"}),
    "tp by position, llama": ("tp", "llama", SAVED | BY_POSITION),
    "tp, tied llama, long rows": ("tp", "tied llama", SAVED | LONG_ROWS),
    "cp, gpt": ("cp", "flat gpt", {"GRAD_ACC": "2"}),
    "cp, llama, long rows": ("cp", "llama", LONG_ROWS),
    "ulysses, gpt": ("ulysses", "flat gpt", {"GRAD_ACC": "2"}),
    "ulysses, llama, long rows": ("ulysses", "llama", LONG_ROWS),
    "gpipe, gpt": ("pp", "deep gpt", SAVED | GPIPE),
    "gpipe, llama": ("pp", "llama", GPIPE | {"GRAD_ACC": "2"}),
    "1f1b, untied gpt": ("pp", "untied gpt", ONE_F_ONE_B),
    "1f1b, tied llama, long rows": ("pp", "tied llama", ONE_F_ONE_B | LONG_ROWS),
    "interleaved, gpt": ("pp", "deep gpt", INTERLEAVED),
    "interleaved, llama": ("pp", "deep llama", SAVED | INTERLEAVED | {"GRAD_ACC": "2"}),
    "interleaved, tied llama": ("pp", "deep tied llama", SAVED | INTERLEAVED | {"GRAD_ACC": "2"}),
    "ep, mixture": ("ep", "mixture", SAVED | OF_REFERENCES["mixture"]),
    "ep, padded mixture, long rows": ("ep", "mixture, padded", OF_REFERENCES["mixture, padded"] | LONG_ROWS),
}
FOUR_RANKS: dict[str, Case] = {
    "dp x tp by position, gpt, long rows": ("tp", "flat gpt", BY_POSITION | LONG_ROWS | {"TP_SIZE": "2"}),
    "cp on 4, gpt": ("cp", "flat gpt", {}),
    "cp on 4, llama": ("cp", "flat llama", {}),
    "dp x cp, llama": ("cp", "flat llama", {"CP_SIZE": "2"}),
    "dp x pp, tied llama": ("pp", "tied llama", ONE_F_ONE_B | {"PP_SIZE": "2"}),
    "ep on 2 of 4, mixture": ("ep", "mixture", SAVED | OF_REFERENCES["mixture"] | {"EP_SIZE": "2"}),
    "ep on 1 of 4, which is FSDP, mixture": ("ep", "mixture", OF_REFERENCES["mixture"] | {"EP_SIZE": "1"}),
}
RUNS = TWO_RANKS | FOUR_RANKS


def layers(model: str) -> int:
    return LAYERS.get(model.split()[0], 2)


def reference(runs: Path, name: str) -> Path:
    return runs / f"one, {RUNS[name][1]}"


@pytest.fixture(scope="module")
def runs(ranks: Ranks, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run folders by the names above; those of `reference` are by-hand/ddp.py's on one rank, one for each model."""
    folder = tmp_path_factory.mktemp("proof")
    shapes = (REPO / f"workshop/shapes/tiny-{name}.json" for name in ("llama", "olmoe"))
    llama, mixture = (json.loads(path.read_text()) for path in shapes)
    models = sorted({model for _, model, _ in RUNS.values()})
    for model in models:
        (folder / model).mkdir()
        own = {"tie_word_embeddings": "tied" in model, "num_hidden_layers": layers(model)}
        shape = mixture | {"initializer_range": 0.1} if "mixture" in model else llama | LLAMA
        (folder / model / "config.json").write_text(json.dumps(shape | own))

    def run(name: str, case: Case, exercise: str = "dimensions", ranks: int = 2) -> Training:
        script, model, own = case
        micro_batches = int(own.get("GRAD_ACC", "4" if script == "pp" else "1"))
        groups = 2 if name.startswith("dp x") else ranks if script == "ep" else 1
        rows = {"GRAD_ACC": str(micro_batches), "BATCH_SIZE": str(ROWS // micro_batches // groups)}
        named = {"NUM_LAYERS": str(layers(model)), "UNTIED": "true" if "untied" in model else ""}
        named["MODEL_NAME"] = "simple-gpt" if "gpt" in model else str(folder / model)
        command = [Path(__file__).with_name("run_and_record.py"), script]
        return training(folder / name, exercise, "", command, **SETTINGS | own | rows | named)

    references = [(model, ("ddp", model, OF_REFERENCES.get(model, {}))) for model in models]
    ranks.train([run(f"one, {model}", case, "by-hand") for model, case in references], ranks=1)
    ranks.train([run(name, case) for name, case in TWO_RANKS.items()])
    ranks.train([run(name, case, ranks=4) for name, case in FOUR_RANKS.items()], ranks=4)
    return folder


def test_weight_without_a_gradient_ends_no_pipeline(ranks: Ranks, tmp_path: Path) -> None:
    """The routers of Laguna have a bias that is not trained: the norm of the gradients asked for its gradient."""
    sizes = {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": HEAD_SIZE}
    sizes |= {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "vocab_size": VOCABULARY}
    sizes |= {"shared_expert_intermediate_size": 16, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "laguna"} | LLAMA | sizes))
    own = SETTINGS | {"MODEL_NAME": str(tmp_path)}
    one = training(tmp_path / "one", "by-hand", "", ["ddp.py"], **own, BATCH_SIZE=str(ROWS), GRAD_ACC="1")
    ranks.train([one], ranks=1)
    staged = {"BATCH_SIZE": "2", "GRAD_ACC": "2", "PP_SIZE": "2"}
    ranks.train([training(tmp_path / "four", "dimensions", "", ["pp.py"], **own, **staged)], ranks=4)
    assert losses(tmp_path / "four") == pytest.approx(losses(tmp_path / "one"), rel=EXACT)


def proof(run: Path, rank: int = 0) -> dict[str, Any]:
    """What run_and_record.py has left on a rank, without the biases of the GPT's keys.

    Softmax does not see them: their gradient is 0 but for rounding, which Adam makes as large as any other's.
    """
    found = torch.load(run / f"proof-{rank}.pt")
    for tensors in (found["weights"], *found["gradients"]):
        for name in tensors:
            if name.endswith("qkv_proj.bias"):
                tensors[name] = tensors[name].unflatten(0, (-1, 3, HEAD_SIZE))[:, [0, 2]]
    return found


def differences(runs: Path, name: str) -> dict[str, float]:
    """What is further from the reference than EXACT, relative to it: losses, norms, gradients and weights."""
    expected, run = proof(reference(runs, name)), runs / name
    far, keys = {}, set()

    def compare(what: str, ours: torch.Tensor, theirs: torch.Tensor) -> None:
        if not (distance := ((ours - theirs).norm() / theirs.norm()).item()) <= EXACT:
            far[what] = distance

    assert len(losses(run)) == STEPS
    compare("losses", torch.tensor(losses(run)), torch.tensor(losses(reference(runs, name))))
    for found in (proof(run, rank) for rank in range(record(run)["world_size"])):
        compare("norms", torch.tensor(found["norms"]), torch.tensor(expected["norms"]))
        pairs = {f"gradients {n}": (found["gradients"][n], expected["gradients"][n]) for n in (0, 1)}
        for kind, (ours, theirs) in (pairs | {"weights": (found["weights"], expected["weights"])}).items():
            keys |= ours.keys()
            for key, tensor in ours.items():
                compare(f"{kind}: {key}", tensor, theirs[key])
    assert keys == expected["weights"].keys()
    return far


@pytest.mark.parametrize("name", RUNS)
def test_training_is_that_of_one_process(runs: Path, name: str) -> None:
    of_one = losses(reference(runs, name))
    assert of_one[-1] < of_one[0] - 0.1, "hardly a training: the comparison would prove nothing"
    assert differences(runs, name) == {}


@pytest.mark.parametrize("name", RUNS)
def test_rank_moves_no_whole_model_to_its_gpu(runs: Path, name: str) -> None:
    """Each rank moved all weights before it kept its part: Qwen2.5-32B's 122 GiB on an H100, for a rank's 15."""
    (whole,) = proof(reference(runs, name))["moved"]
    moved = [sum(proof(runs / name, rank)["moved"]) for rank in range(record(runs / name)["world_size"])]
    if RUNS[name][0] == "pp":
        assert 0 < max(moved) < whole, "a rank's stages"
    else:
        assert max(moved) == 0, "fully_shard and distribute_tensor move part by part"


@pytest.mark.parametrize("name", [name for name in RUNS if not name.startswith("dp x pp")])
def test_predicted_bytes_are_those_that_are_counted(runs: Path, name: str) -> None:
    """Beside the formula: the norm, the loss, the targets; by position the gradients of norms and positions."""
    run = counted(runs / name, "dimensions")
    small = 0.02 if "by position, gpt" in name else 0.005 if "tp" in name else 0.001 if name.startswith("ep") else 0.002
    assert value_of(run, "sent_mib") == pytest.approx(value_of(run, "predicted_sent_mib"), rel=small)
    assert value_of(run, "sent_mib") > value_of(run, "predicted_sent_mib")


def test_ranks_that_share_rows_count_them_once(runs: Path) -> None:
    for name, dp_size in (("tp, gpt", 1), ("dp x tp by position, gpt, long rows", 2)):
        one = reference(runs, name)
        facts, expected = record(runs / name), record(one)
        assert facts["dp_size"] == dp_size
        assert facts["steps_per_epoch"] == expected["steps_per_epoch"]
        assert facts["flops_per_gpu_per_step"] * facts["world_size"] == expected["flops_per_gpu_per_step"]
        for column in ("tokens", "real_tokens", "samples", "epoch"):
            assert [step[column] for step in steps(runs / name)] == [step[column] for step in steps(one)]


def model_of(runs: Path, name: str, trained: bool) -> PreTrainedModel:
    """The run's model with random weights, or with those that its reference has trained."""
    model = RUNS[name][1]
    if "gpt" in model:
        sizes = {key.lower(): int(SETTINGS[key]) for key in ("VOCAB_SIZE", "HIDDEN_SIZE", "NUM_HEADS", "FF_DIM")}
        found = SimpleGPTModel(SimpleGPTConfig(**sizes, num_layers=layers(model), seq_length=LENGTH))
    else:
        found = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(runs / model))
    if trained:
        found.load_state_dict(torch.load(reference(runs, name) / "proof-0.pt")["weights"])
    return found


def load_checkpoint(weights: dict[str, torch.Tensor], run: Path) -> None:
    checkpoint.load(weights, checkpoint_id=run / "bloom-qa-finetuned", no_dist=True)


@pytest.mark.parametrize("name", [name for name, (_, _, own) in RUNS.items() if "SAVE" in own])
def test_checkpoint_of_two_ranks_opens_in_one_process(runs: Path, name: str) -> None:
    opened, expected = model_of(runs, name, trained=False), model_of(runs, name, trained=True)
    load_checkpoint(dict(opened.named_parameters()), runs / name)
    with torch.no_grad():
        found, theirs = opened(TOKENS).logits, expected(TOKENS).logits
    assert (found - theirs).norm() <= 1e-4 * theirs.norm()
    assert theirs.std() > 0.1


@pytest.mark.parametrize("name", [name for name, (script, *_) in TWO_RANKS.items() if script == "tp"])
def test_checkpoint_of_tensor_parallelism_opens_in_a_pipeline(runs: Path, name: str) -> None:
    settings = SimpleNamespace(bf16=False, gradient_checkpointing=False, loss_chunk=0, max_length=LENGTH)
    first, last = (Stage(model_of(runs, name, trained=False), number, 2, settings) for number in (0, 1))
    load_checkpoint(first.own | last.own, runs / name)
    if last.tied is not None:
        last.tied.data.copy_(first.tied.data)
    with torch.no_grad():
        logits = model_of(runs, name, trained=True)(TOKENS).logits
        loss = last(first(TOKENS), TOKENS)
    assert loss.item() == pytest.approx(cross_entropy(logits[0], TOKENS[0], reduction="sum").item(), rel=1e-5)


def test_pipeline_without_rows_for_a_step_is_refused_and_does_not_spin(ranks: Ranks, tmp_path: Path) -> None:
    own = {"MODEL_NAME": "simple-gpt", "TRAIN_SIZE": "6", "BATCH_SIZE": "1", "GRAD_ACC": "4", "PP_SIZE": "1"}
    command = [Path(__file__).with_name("run_and_record.py"), "pp"]
    run = training(tmp_path / "run", "dimensions", "", command, **SETTINGS | own)
    assert 0 not in ranks.ask(trainings=[run], ranks=2)
    found = "TRAIN_SIZE=6: found 6 rows, a step takes 4 (BATCH_SIZE x GRAD_ACC) in each of 2 copies of the model"
    assert f"{found}; expected 8 or more" in (tmp_path / "run/train.out").read_text()
