"""One hub for all of these tests, filled once; and a cache that a prefetch has filled from it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hub.commands import python
from tests.hub.hub_server import HubServer
from tests.hub.repositories import make_repositories


@pytest.fixture(scope="session")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubServer]:
    root = tmp_path_factory.mktemp("hub")
    make_repositories(root)
    with HubServer(root, gated={"gated/bloom"}) as server:
        yield server


@pytest.fixture(scope="session")
def cache(hub: HubServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `prefetch` leaves: the default model and data, and exercise 4's sharded model."""
    folder = tmp_path_factory.mktemp("hf_home")
    names = ("baseline", "deepspeed-zero3-offload")
    job = python(folder, hub.url, "-m", "workshop.data.prefetch", *names)
    assert job.returncode == 0, job.stdout + job.stderr
    return folder
