"""What a user without settings of their own runs, with the hub at an address of the test's choice."""

import os
import subprocess
import sys
from pathlib import Path

from tests.launching import PATH, REPO

HUB_VARIABLES = ("HF_", "HUGGING", "TRANSFORMERS_", "MODEL_", "DATASET", "TOKENIZER_NAME")


def user(cache: Path, endpoint: str, **changes: str) -> dict[str, str]:
    """The environment of somebody who has set nothing but the cache, on a machine whose hub is at `endpoint`."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(HUB_VARIABLES)}
    proxies = {"NO_PROXY": "*", "no_proxy": "*"}
    return clean | proxies | {"HF_HOME": str(cache), "HF_ENDPOINT": endpoint, "PATH": PATH} | changes


def python(cache: Path, endpoint: str, *arguments: str, **changes: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    environment = user(cache, endpoint, **changes)
    return subprocess.run(command, cwd=REPO, env=environment, capture_output=True, text=True, timeout=300)
