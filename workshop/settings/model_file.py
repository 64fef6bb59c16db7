"""Models by name, without torch: known shapes, and config.json of models on this machine."""

import re
from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from workshop.record.errors import InputError, read_json

_WORKSHOP = Path(__file__).parents[1]
# Configurations, as far as they differ from their model type's defaults; sources: the models' config.json on the hub.
SHAPES = {path.stem: path for path in sorted((_WORKSHOP / "shapes").glob("*.json"))}
# The last ones nothing here loads: a training that asks for them is refused, not begun from random weights.
_WEIGHTS = ("*.safetensors", "pytorch_model*.bin", "*.index.json", "*.pth", "*.gguf", "*.h5", "*.msgpack")
TINY = _WORKSHOP / "sample" / "tiny_bloom"  # shipped with the sample, whose tokenizer it fits


def short_name(model_name: str) -> str:
    """`bigscience/bloom-560m` -> `bloom-560m`; a folder -> its last part."""
    return model_name.rstrip("/").rsplit("/", 1)[-1]


def base_name(model_name: str) -> str:
    """Without what says how a model was trained on: Llama-3.1-8B-Instruct has the shape of Llama-3.1-8B."""
    return re.sub(r"-(base|chat|instruct|it|pt)(?=-|$)", "", model_name.lower())


def model_path(model_name: str) -> Path | None:
    """The file of a model's configuration: a config.json or its folder, a shape, or the hub's cache; None without."""
    name, given = base_name(short_name(model_name)), Path(model_name)
    for path in (given, given / "config.json", SHAPES.get(name), TINY / "config.json" if name == "tiny" else None):
        if path and path.is_file():
            return path
    if "/" not in model_name:
        return None
    from huggingface_hub import try_to_load_from_cache

    try:
        file = try_to_load_from_cache(model_name, "config.json")
    except ValueError:  # no name of the hub: the training says so
        return None
    return Path(file) if isinstance(file, str | Path) else None


def shape_path(model_name: str) -> Path:
    """The file of a configuration whose weights are drawn. Raises InputError listing the shapes."""
    if path := model_path(model_name):
        return path
    expected = f"expected a folder with a config.json, or a shape out of {', '.join([*SHAPES, 'tiny'])}"
    near = get_close_matches(short_name(model_name).lower(), ["tiny", *SHAPES], 1, 0.86)  # as typos of variables
    meant = f"did you mean {near[0]}? " if near else ""
    raise InputError(f"MODEL_NAME='{model_name}' with MODEL_INIT=random: {meant}{expected}")


def weight_files(folder: Path) -> list[Path]:
    """The files of a model's weights in its folder, and their index."""
    return sorted(file for name in _WEIGHTS for file in folder.glob(name))


def model_file(model_name: str) -> dict[str, Any]:
    """The content of `model_path`, or its `text_config`, whose `_text_of` is then the whole model's type if
    Transformers trains the decoder alone only. {} without a path. Raises InputError for what is no JSON.
    """
    path = model_path(model_name)
    content = dict(_content(path)) if path else {}
    if not isinstance(text := content.get("text_config"), dict):
        return content
    kind = decoder_type(str(text.get("model_type")))
    alone = {"model_type": kind, "_text_of": content.get("model_type")} if kind != text.get("model_type") else {}
    return text | alone | {name: content.get(name, "") for name in ("_name_or_path", "quantization_config")}


def check_weights(model_name: str) -> None:
    """Raises InputError for a checkpoint of integers, as GPTQ's; QLoRA makes its 4 bits of floating-point weights."""
    quantized = model_file(model_name).get("quantization_config") or {}
    if quantized and not quantized.get("dequantize"):
        found = f"found weights quantized by {quantized.get('quant_method')}"
        raise InputError(f"MODEL_NAME={model_name}: {found}; expected floating point, or its key dequantize")


def check_units(path: str, configuration: Mapping[str, Any], model_name: str) -> None:
    """Raises InputError for FSDP units that are no blocks: embedding and head, which may be tied, are in one anyway."""
    blocks = _blocks(kind := str(model_file(model_name).get("model_type")))
    units = configuration.get("transformer_layer_cls_to_wrap", ())
    if blocks and (others := ", ".join(name for name in units if name not in blocks)):
        expected = f"expected {' or '.join(blocks)}, blocks of a {kind}"
        raise InputError(f"{path}: transformer_layer_cls_to_wrap is {others}; {expected}")


@cache
def _content(path: Path) -> dict[str, Any]:
    return read_json(path)


@cache
def modeling_source(kind: str) -> str:
    """Transformers' source of a type of models, or of `auto`; "" without it. To import it takes seconds."""
    kind, library = kind.removesuffix("_text"), find_spec("transformers")
    file = Path(library.origin).parent / f"models/{kind}/modeling_{kind}.py" if library else Path("none")
    return file.read_text() if file.is_file() else ""


@cache
def decoders() -> dict[str, str]:
    """Types that Transformers makes a decoder of, with its class; none that see the tokens to predict. Empty without
    Transformers.
    """
    text = modeling_source("auto")
    listed = (text.partition(f"MODEL_FOR_{kind}_LM_MAPPING_NAMES = ")[2] for kind in ("CAUSAL", "MASKED"))
    causal, masked = (dict(re.findall(r'\("([\w-]+)", "(\w+)"', names.partition("\n)\n")[0])) for names in listed)
    return {kind: name for kind, name in causal.items() if kind not in masked}


def decoder_type(kind: str) -> str:
    """The type of a text decoder. One that Transformers has no class for is its language model's: qwen3_vl_text."""
    plain = re.sub(r"(_\d+)?_vl(_moe)?_text$", r"\2", kind)
    return plain if kind not in decoders() and plain in decoders() else kind


@cache
def _blocks(kind: str) -> list[str]:
    """The classes of the blocks of a type of models, as Transformers declares them; [] without it."""
    lists = re.findall(r"_no_split_modules = \[([^\]]*)\]", modeling_source(kind))
    return sorted({*re.findall(r'"(\w+)"', " ".join(lists))})


def most_positions(model: Mapping[str, Any]) -> int | None:
    """Rows of a table of positions; None for a model without one: rotary positions go on beyond what it has seen."""
    learned = _learns_positions(str(model.get("model_type")))
    return model.get("n_positions") or (model.get("max_position_embeddings") if learned else None)


@cache
def _learns_positions(kind: str) -> bool:
    table = r"(nn\.|Learned\w*)Embedding\(\s*config\.max_position_embeddings"
    return bool(re.search(table, modeling_source(kind)))
