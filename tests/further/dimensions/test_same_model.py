"""A script trains the library's model or refuses it: by its sizes before anything is started, by a small one then."""

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import cp
import pp
import pytest
import shared
import torch
import ulysses
from by_hand_settings import ByHandSettings
from dimension_settings import DimensionSettings
from transformers import AutoConfig

from tests.workshop.environment import ENVIRONMENT
from workshop.record.errors import InputError
from workshop.record.exercises import Start
from workshop.settings.dimensions import LIKE_LLAMA, TYPES, why_not
from workshop.settings.model_file import SHAPES, model_file

LENGTH = 65_536
LOSSES: dict[str, Callable[[Any], Any]] = {
    "cp": lambda settings: partial(cp.loss_in_order, settings, cp.shard_of),
    "ulysses": lambda settings: partial(cp.loss_in_order, settings, ulysses.shard_of),
    "pp": lambda settings: partial(pp.loss_of_stages, settings),
}
SIZES = dict.fromkeys(("NUM_LAYERS", "NUM_HEADS"), "2") | dict.fromkeys(("HIDDEN_SIZE", "FF_DIM"), "8")
SIZES |= {"VOCAB_SIZE": "64", "SEQ_LENGTH": "64", "FP16": "false"}
WINDOW = {"layer_types": ["sliding_attention", "full_attention"], "num_hidden_layers": 2, "sliding_window": 4096}
LAST = {"sliding_window": 4096, "use_sliding_window": True, "max_window_layers": 24}
FULL = {"layer_types": ["full_attention", "full_attention"]}  # linear attention takes a minute without its kernel
FOREIGN: dict[str, dict[str, Any]] = {
    "llama with attention dropout": {"model_type": "llama", "attention_dropout": 0.1},
    "olmo3": {"model_type": "olmo3"} | WINDOW,
    "mistral with a window": {"model_type": "mistral", "sliding_window": 4096},
    "mistral with a longer window": {"model_type": "mistral", "sliding_window": LENGTH},
    "qwen2 with a window that is off": {"model_type": "qwen2", "sliding_window": 4096, "use_sliding_window": False},
    "qwen2 whose last layers have a window": {"model_type": "qwen2"} | LAST,
    "qwen2 whose window no layer has": {"model_type": "qwen2", "num_hidden_layers": 24} | LAST,
    "gemma": {"model_type": "gemma"},
    "gemma2 with caps": {"model_type": "gemma2"} | WINDOW,
    "gpt_oss with sinks": {"model_type": "gpt_oss"} | WINDOW,
    "falcon with ALiBi": {"model_type": "falcon", "alibi": True},
    "cohere": {"model_type": "cohere"},
    "granite without scales": {"model_type": "granite", "attention_multiplier": 0.25},
    "deepseek_v3": {"model_type": "deepseek_v3"},
    "groups of experts by another name": {"model_type": "bailing_hybrid", "num_hidden_layers": 2} | FULL,
    "stablelm": {"model_type": "stablelm"},
    "gemma3 without windows": {"model_type": "gemma3_text"} | FULL | {"num_hidden_layers": 2},
    "mixtral with its router's loss": {"model_type": "mixtral", "output_router_logits": True},
    "granitemoehybrid": {"model_type": "granitemoehybrid"},
    "jetmoe": {"model_type": "jetmoe"},
    "few layers of two kinds": {"model_type": "smollm3", "num_hidden_layers": 2, "no_rope_layers": [1, 0]},
    "minimax": {"model_type": "minimax"},
    "minicpm3": {"model_type": "minicpm3"},
}


def checked(script: str, config: Any, folder: Path) -> str:
    """What the script's check says of a configuration as it starts, without what it says before."""
    given = ENVIRONMENT | SIZES | {"MODEL_NAME": "a model", "MAX_LENGTH": "64"}
    settings = DimensionSettings.from_environment(given, folder / "none", Start(folder, "", f"{script}.py", 1))
    object.__setattr__(settings, "max_length", LENGTH)
    before = patch.object(DimensionSettings, "check_model")
    with patch.object(shared, "model_config", lambda _: config), before:
        try:
            shared.check_model(settings, LOSSES[script](settings))
        except InputError as error:
            return str(error)
    return ""


# Of shapes of one kind the configurations differ in sizes only. Falcon-H1's small one takes minutes on a CPU.
OF_SHAPES = {
    model["model_type"]: model for name in SHAPES if not name.startswith("falcon-h1") and (model := model_file(name))
}
MODELS = OF_SHAPES | FOREIGN
REFUSED_BY_ALL = {"bloom", "granite", "llama4_text", "falcon with ALiBi", "cohere", "minicpm3"}
REFUSED_BY_ALL |= {"mixtral with its router's loss", "gemma2 with caps"}
OTHER_ATTENTION = {
    *("deepseek_v2", "gemma3_text", "gpt_oss", "olmo3", "llama with attention dropout", "mistral with a window"),
    *("gpt_oss with sinks", "deepseek_v3", "groups of experts by another name"),
    *("granitemoehybrid", "minimax", "qwen2 whose last layers have a window"),
}
REFUSED = {"cp": OTHER_ATTENTION, "ulysses": OTHER_ATTENTION, "pp": {"gpt2"}}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("script", LOSSES)
def test_model_is_trained_as_the_librarys_or_refused(script: str, name: str, tmp_path: Path) -> None:
    """OLMo 3, Gemma 3, Granite and BLOOM were trained as other models, without a word."""
    model = MODELS[name]
    config = AutoConfig.for_model(**{key: value for key, value in model.items() if not key.startswith("_")})
    shown = checked(script, config, tmp_path)
    assert bool(shown) == (name in REFUSED_BY_ALL | REFUSED[script]), shown
    assert why_not(script, model, LENGTH) or not shown, "it is queued, and the planner names it"


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Threads of a small model wait for each other, on a busy machine for minutes."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("kind", TYPES["pp"])
def test_type_that_is_taken_is_trained_as_the_librarys_but_for_its_window(kind: str, tmp_path: Path) -> None:
    """Granite, Gemma 3 and OLMo 3 were refused for their types: only some values, and rows beyond a window, are."""
    config = AutoConfig.for_model(kind)
    for script in LOSSES if kind in LIKE_LLAMA else ["pp"]:
        shown = checked(script, config, tmp_path)
        assert bool(shown) == bool(why_not(script, config.to_dict(), LENGTH)), shown
        assert why_not(script, {"model_type": kind}, LENGTH) or not shown, "the library's own window"
        assert not why_not(script, {"model_type": kind}, 512)


@pytest.mark.parametrize(
    ("script", "processes", "own", "message"),
    [
        ("tp", 2, {"MODEL_NAME": "qwen-3-8b"}, "tp.py is not shown to train a qwen3 .* expected llama"),
        ("ep", 2, {"MODEL_NAME": "qwen-3-8b"}, "ep.py is not shown to train a qwen3 .* expected olmoe"),
        ("pp", 2, {"MODEL_NAME": "granite-3.3-8b"}, "pp.py has no logits_scaling; found 16.0, expected none"),
        ("cp", 2, {"MODEL_NAME": "bloom-560m"}, "cp.py is not shown to train a bloom as the library does"),
        ("tp", 16, {"MODEL_NAME": "llama-3.1-8b"}, "found 8 key heads for 16 ranks"),
        ("tp", 2, {"NUM_HEADS": "1"}, "MODEL_NAME=simple-gpt: found 1 key head for 2 ranks"),
        ("pp", 2, {"NUM_LAYERS": "1", "GRAD_ACC": "2"}, "found 1 layer for 2 stages"),
        ("ep", 3, {"MODEL_NAME": "olmoe-4-layers"}, "found 64 experts for 3 ranks"),
    ],
)
def test_settings_check_refuses_it_before_a_run_folder_is_made(script, processes, own, message, tmp_path) -> None:
    given = ENVIRONMENT | SIZES | {"MODEL_NAME": "simple-gpt", "MAX_LENGTH": "64"}
    start = Start(tmp_path, "", f"{script}.py", processes)
    with pytest.raises(InputError, match=message):
        DimensionSettings.from_environment(given | own, tmp_path / "none", start).check_start()


@pytest.mark.parametrize(("of", "script"), [(ByHandSettings, "ddp.py"), (DimensionSettings, "pp.py")])
def test_loss_of_a_router_is_not_left_out_without_a_word(of: type[ByHandSettings], script: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "mixtral", "output_router_logits": True}))
    given = ENVIRONMENT | SIZES | {"MODEL_NAME": str(tmp_path), "MAX_LENGTH": "64", "GRAD_ACC": "2"}
    start = Start(tmp_path, "", script, 2)
    with pytest.raises(InputError, match=rf"{script} would .* its router's loss"):
        of.from_environment(given, tmp_path / "none", start).check_start()
