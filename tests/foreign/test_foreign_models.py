"""Folders with a config.json as MODEL_NAME: the fast forward pass is exact for the model, or it is refused clearly.

The planner answers for the model, or says why not.
"""

import json
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from tests.simulated_here import simulated_here, step
from tests.workshop.data.forms import load_squad
from tests.workshop.environment import ENVIRONMENT
from tests.workshop.kernels.fast_models.small_models import small
from tools.plan.candidates import Question
from tools.plan.ranking import rank
from tools.plan.simulate import Shape, SimulatedStep
from workshop.data.encoding import load_tokenizer
from workshop.kernels.fast_models import difference, packed_with
from workshop.record.errors import InputError
from workshop.settings.model_file import model_file, most_positions
from workshop.settings.settings import Settings
from workshop.simulate import tensor_bytes
from workshop.training.generation import answer_questions
from workshop.training.models import blocks_of, load_model, model_size

pytestmark = pytest.mark.long

MODELS = Path(__file__).parent / "models"
NO_SDPA = "ValueError: {}ForCausalLM does not support an attention implementation"
OTHERWISE = "of a small one differ by"
VERDICTS = {folder.name: "" for folder in sorted(MODELS.iterdir())} | {
    **{"codegen": NO_SDPA.format("CodeGen"), "mpt": NO_SDPA.format("Mpt"), "rwkv": NO_SDPA.format("Rwkv")},
    **{"gpt_neo": NO_SDPA.format("GPTNeo"), "vaultgemma": NO_SDPA.format("VaultGemma"), "xglm": NO_SDPA.format("XGLM")},
    **{"cohere2": OTHERWISE, "granitemoe": OTHERWISE, "jamba": OTHERWISE, "qwen3_next": OTHERWISE},
}


@pytest.mark.parametrize("name", VERDICTS)
def test_model_is_exact_or_refused_with_a_reason(name: str) -> None:
    found = difference(AutoConfig.from_pretrained(MODELS / name), 64, packed_with("sdpa", "chunked"))
    assert VERDICTS[name] in found and bool(found) == bool(VERDICTS[name])


def of_pairs(shapes: Iterable[Shape]) -> Iterator[SimulatedStep]:
    """Each two of engine, method and checkpointing, as all three would take twice the time."""
    for shape in shapes:
        half = shape["gradient_checkpointing"] != shape.get("four_bits", False)
        yield step(shape | {"engine": "half" if half else "autocast"})


ADAPTERS_ONLY = {"diffllama": "its step cannot be simulated: NotImplementedError: Cannot copy out of meta tensor"}
LOOPS = "its step cannot be simulated: RuntimeError: a block launches over 500 operations, as a loop over the positions"


@pytest.mark.parametrize("name", sorted(path.name for path in MODELS.iterdir()))
def test_model_is_planned_or_refused_with_a_reason(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Experts, state-space and mixed blocks were refused; one candidate that could not be simulated ended all."""
    question = Question(str(MODELS / name), 1, 1, "h200", batch=1, length=64)
    with simulated_here():
        monkeypatch.setattr("tools.plan.simulate.simulate", of_pairs)
        if name == "rwkv":
            monkeypatch.setattr(tensor_bytes, "_MOST_LAUNCHES", 500)  # 20,000 for rows that people have: two minutes
            with pytest.raises(InputError, match=f"models/{name}.*{LOOPS}"):
                rank(question)
        elif name in ADAPTERS_ONLY:
            whole = [one for one in rank(question) if one.recipe not in ("LoRA", "QLoRA")]
            assert whole and all(ADAPTERS_ONLY[name] in one.error for one in whole)
        else:
            first, *others = rank(question)
            assert first.prediction.verdict == "fits"
            # peft refuses some layers, bitsandbytes others: that costs their rows.
            assert {one.recipe for one in others if one.error} <= {"LoRA", "QLoRA"}


@pytest.mark.parametrize("name", ["biogpt", "codegen", "gpt_neo", "opt", "persimmon", "stablelm", "xglm"])
def test_row_beyond_the_table_of_positions_is_refused_and_only_there(name: str) -> None:
    """Only n_positions was known: OPT was planned with rows that end its job on the GPU."""
    most, config = most_positions(model_file(str(MODELS / name))), AutoConfig.from_pretrained(MODELS / name)
    assert most == (None if name in ("persimmon", "stablelm", "xglm") else config.max_position_embeddings)
    with pytest.raises(IndexError) if most else nullcontext():
        AutoModelForCausalLM.from_config(config)(torch.ones(1, config.max_position_embeddings + 1, dtype=torch.long))


@pytest.mark.parametrize("name", VERDICTS)
def test_model_loads_as_a_training_loads_it_gives_every_block_gradients_and_answers(name: str) -> None:
    own = {"MODEL_NAME": str(MODELS / name), "MODEL_INIT": "random", "TOKENIZER_NAME": "sample", "MAX_NEW_TOKENS": "2"}
    settings, tokenizer = Settings.from_environment(ENVIRONMENT | own, Path("none")), load_tokenizer("sample")
    model = load_model(settings, tokenizer)
    ids = torch.tensor([tokenizer("The harbour has a boat with a cargo of salt").input_ids])
    model(input_ids=ids, labels=ids, use_cache=False).loss.backward()
    assert all(any(p.grad is not None for p in block.parameters()) for block in blocks_of(model))
    size = model_size(model)
    assert 0 < size.block_parameters < size.parameters == size.trained_parameters
    examples = load_squad("sample", "validation")[:2]
    answers = answer_questions(settings, torch.device("cpu"), model, tokenizer, examples)
    assert answers.keys() == {example["id"] for example in examples}


DAMAGED = [
    ("config.json", {"num_hidden_layers": 3}, "found 9 weights .* missing or of another size, such as model.layers.2."),
    ("config.json", {"hidden_size": "64"}, "cannot load it .*expected int, got str"),
    ("config.json", {"model_type": "bert"}, "bert sees the tokens to predict"),
    ("config.json", {"model_type": "exaone4", "sliding_window_pattern": "LLLG"}, "cannot load it .unsupported operand"),
    ("config.json", {}, ""),
    ("model.safetensors", {}, "cannot load it .model.safetensors of 0 bytes .*header too small"),
    ("pytorch_model.bin", {}, "cannot load it .pytorch_model.bin of 0 bytes cannot be read: EOFError"),
]


@pytest.mark.parametrize(("file", "changes", "message"), DAMAGED)
def test_folder_that_is_no_whole_decoder_is_refused(tmp_path: Path, file: str, changes: dict, message: str) -> None:
    small("llama").save_pretrained(tmp_path)
    changed = json.dumps(json.loads((tmp_path / "config.json").read_text()) | changes) if changes else ""
    (tmp_path / file).write_text(changed)
    if file.endswith(".bin"):  # Transformers prefers safetensors
        (tmp_path / "model.safetensors").unlink()
    own = {"MODEL_NAME": str(tmp_path), "MODEL_INIT": "random" if "bert" in message else "pretrained"}
    refused = f"^MODEL_NAME='{tmp_path}': {message}" if message else f"^{tmp_path}/config.json:1:1: not JSON"
    with pytest.raises(InputError, match=refused):
        load_model(Settings.from_environment(ENVIRONMENT | own, Path("none")), load_tokenizer("sample"))
