"""One hub for all of these tests, filled once; a cache that a prefetch has filled from it; and what a user runs."""

import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hub.hub_server import HubServer
from tests.hub.repositories import make_repositories
from tests.launching import PATH, run

REFUSED = "http://127.0.0.1:9"  # the discard port: nobody listens there
HUB_VARIABLES = ("HF_", "HUGGING", "TRANSFORMERS_", "MODEL_", "DATASET", "TOKENIZER_NAME")


def user(cache: Path, endpoint: str, **changes: str) -> dict[str, str]:
    """The environment of somebody who has set nothing but the cache, on a machine whose hub is at `endpoint`."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(HUB_VARIABLES)}
    proxies = {"NO_PROXY": "*", "no_proxy": "*"}
    return clean | proxies | {"HF_HOME": str(cache), "HF_ENDPOINT": endpoint, "PATH": PATH} | changes


def python(cache: Path, endpoint: str, *arguments: str, **changes: str) -> subprocess.CompletedProcess[str]:
    return run("python", *arguments, code=None, env=user(cache, endpoint, **changes))


@pytest.fixture(scope="session")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubServer]:
    root = tmp_path_factory.mktemp("hub")
    make_repositories(root)
    with HubServer(root) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}).start()
        yield server
        server.shutdown()


@pytest.fixture(scope="session")
def cache(hub: HubServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `prefetch` leaves: the default model and data, and the offload exercise's sharded model."""
    folder = tmp_path_factory.mktemp("hf_home")
    names = ("baseline", "deepspeed-zero3-offload")
    job = python(folder, hub.url, "-m", "workshop.data.prefetch", *names)
    assert job.returncode == 0, job.stdout + job.stderr
    return folder
