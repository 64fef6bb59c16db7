"""Models by name, without torch: known shapes, and config.json of models on this machine."""

from pathlib import Path
from typing import Any

from workshop.run_folder.errors import InputError
from workshop.run_folder.json_file import read_json

_WORKSHOP = Path(__file__).parents[1]
# Configurations, as far as they differ from their model type's defaults; sources: the models' config.json on the hub.
SHAPES = {path.stem: path for path in sorted((_WORKSHOP / "shapes").glob("*.json"))}
TINY = _WORKSHOP / "sample" / "tiny_bloom"  # shipped with the sample, whose tokenizer it fits


def short_name(model_name: str) -> str:
    """`bigscience/bloom-560m` -> `bloom-560m`; a folder -> its last part."""
    return model_name.rstrip("/").rsplit("/", 1)[-1]


def model_file(model_name: str) -> dict[str, Any]:
    """Return a model's config.json from its folder, a shape or the hub's cache; {} where none has it."""
    name = short_name(model_name).lower()
    file = next((path for path in (Path(model_name, "config.json"), SHAPES.get(name)) if path and path.is_file()), None)
    if name == "tiny":
        file = TINY / "config.json"
    if not file and "/" in model_name:
        from huggingface_hub import try_to_load_from_cache

        try:
            file = try_to_load_from_cache(model_name, "config.json")
        except ValueError:  # no name of the hub: the training says so
            return {}
    try:
        return read_json(Path(file)) if isinstance(file, str | Path) else {}
    except InputError:
        return {}
