"""Whatever W&B's server does, a job neither fails nor waits long."""

import socket
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.workshop.environment import ENVIRONMENT
from workshop.settings import Settings
from workshop.training.weights_and_biases import hindrance, report_summary

NOBODY = "http://127.0.0.1:9"  # listens there
KEY = "k" * 40


@pytest.fixture(autouse=True)
def nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No key, no proxy, and no server."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("WANDB_API_KEY", "WANDB_DIR", "WANDB_PROJECT", "WANDB_RUN_ID", "WANDB_RESUME", "http_proxy"):
        monkeypatch.setenv(name, "")  # so that what a test sets is undone
        monkeypatch.delenv(name)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_BASE_URL", NOBODY)


@pytest.fixture
def run_of_client(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> SimpleNamespace:
    """What the client keeps of a run: its folder, its summary."""
    run = SimpleNamespace(dir=str(tmp_path / "wandb/offline-run-1/files"), summary={}, finish=lambda: None)
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(run=run))
    return run


def settings(**changed: str) -> Settings:
    return Settings.from_environment(ENVIRONMENT | changed, Path("none"))


def test_silent_server_is_given_up(monkeypatch, run_of_client, capsys, tmp_path) -> None:
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    with socket.create_server(("127.0.0.1", 0)) as server:  # accepts and says nothing
        monkeypatch.setenv("WANDB_BASE_URL", url := f"http://127.0.0.1:{server.getsockname()[1]}")
        assert hindrance(timeout_s=0.3) == f"{url} does not answer"  # else it would wait for the server without end
    report_summary({"avg_gpu_util_%": 1.5})
    assert run_of_client.summary == {"avg_gpu_util_%": 1.5}
    command = f"wandb sync {tmp_path}/wandb/offline-run-1"
    assert capsys.readouterr().out == (
        f"Weights & Biases: offline; {url} does not answer; send it later with `{command}`\n"
    )
