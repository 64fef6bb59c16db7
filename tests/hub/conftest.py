"""One hub for all of these tests, filled once; and a cache that a prefetch has filled from it."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hub_server import HubServer
from repositories import make_repositories

from tests.launching import PATH, REPO

HUB_VARIABLES = ("HF_", "HUGGING", "TRANSFORMERS_", "MODEL_", "DATASET", "TOKENIZER_NAME")


@pytest.fixture(scope="session")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubServer]:
    root = tmp_path_factory.mktemp("hub")
    make_repositories(root)
    with HubServer(root, gated={"gated/bloom"}) as server:
        yield server


Run = Callable[..., subprocess.CompletedProcess[str]]


def user(cache: Path, endpoint: str, **changes: str) -> dict[str, str]:
    """The environment of somebody who has set nothing but the cache, on a machine whose hub is at `endpoint`."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(HUB_VARIABLES)}
    proxies = {"NO_PROXY": "*", "no_proxy": "*"}
    return clean | proxies | {"HF_HOME": str(cache), "HF_ENDPOINT": endpoint, "PATH": PATH} | changes


def python(cache: Path, endpoint: str, *arguments: str, **changes: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    environment = user(cache, endpoint, **changes)
    return subprocess.run(command, cwd=REPO, env=environment, capture_output=True, text=True, timeout=60)


@pytest.fixture(scope="session")
def cache(hub: HubServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `prefetch` leaves: the default model and data, and exercise 4's sharded model."""
    folder = tmp_path_factory.mktemp("hf_home")
    names = ("baseline", "deepspeed-zero3-offload")
    job = python(folder, hub.url, "-m", "workshop.prefetch", *names)
    assert job.returncode == 0, job.stdout + job.stderr
    return folder
