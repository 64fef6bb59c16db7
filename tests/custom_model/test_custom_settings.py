"""The custom model's sizes are settings like all others."""

import pytest

from custom_model.settings import CustomSettings
from tests.launching import REPO
from workshop.run_folder.env_file import sourced
from workshop.run_folder.errors import InputError

ENV_FILE = REPO / "custom_model/env_vars.sh"


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
    environment = sourced(ENV_FILE, {"REPO": str(REPO), "RUN_DIR": "/tmp/run"} | changed)
    with pytest.raises(InputError, match=message):
        CustomSettings.from_environment(environment, ENV_FILE)
