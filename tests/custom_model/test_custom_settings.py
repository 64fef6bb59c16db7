"""The custom model's sizes are settings like all others; those of the workshop do not know them."""

import re
from pathlib import Path

import pytest

from custom_model.settings import CustomSettings
from workshop.errors import WorkshopError
from workshop.settings import Settings

REPO = Path(__file__).parents[2]
ENV_FILE = REPO / "custom_model" / "env_vars.sh"


def defaults() -> dict[str, str]:
    """What env_vars.sh sets where the shell sets nothing."""
    values = dict(re.findall(r'export (\w+)="\$\{\w+:-(.*)\}"', ENV_FILE.read_text()))
    return values | {"MAX_LENGTH": values["SEQ_LENGTH"], "RUN_DIR": "/tmp/run"}


def test_defaults_are_the_workshops_sizes() -> None:
    settings = CustomSettings.from_environment(defaults(), ENV_FILE)
    sizes = [settings.vocab_size, settings.hidden_size, settings.num_layers, settings.num_heads, settings.ff_dim]
    assert [*sizes, settings.seq_length] == [50_000, 2048, 3, 16, 8192, 512]
    assert settings.as_record()["model_name"] == "simple-gpt"
    assert settings.fabric_min_gb_per_s == 5


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"NUM_HEADS": "15"}, "HIDDEN_SIZE=2048 cannot be shared among NUM_HEADS=15"),
        ({"MAX_LENGTH": "1024"}, "MAX_LENGTH=1024: the model has only SEQ_LENGTH=512 positions"),
        ({"MODEL_NAME": "bigscience/bloom-560m"}, "MODEL_NAME='bigscience/bloom-560m'.*expected simple-gpt"),
        ({"NUM_LAYERS": "0"}, r"NUM_LAYERS='0' \(.*env_vars.sh:\d+, or set in your shell\): expected a whole number"),
        ({"FABRIC_MIN_GB_PER_S": "fast"}, "FABRIC_MIN_GB_PER_S='fast'.*expected a number of at least 0"),
    ],
)
def test_sizes_that_do_not_fit_are_errors(changed: dict[str, str], message: str) -> None:
    with pytest.raises(WorkshopError, match=message):
        CustomSettings.from_environment(defaults() | changed, ENV_FILE)


def test_every_added_field_is_read_somewhere() -> None:
    sources = "".join(path.read_text() for path in (REPO / "custom_model").glob("*.py"))
    added = CustomSettings.__dataclass_fields__.keys() - Settings.__dataclass_fields__.keys()
    assert [name for name in added if not re.search(rf"(?:settings|self)\.{name}\b", sources)] == []
