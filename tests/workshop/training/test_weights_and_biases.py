"""Whatever W&B's server does, a job neither fails nor waits long."""

import importlib.util
import os
import socket
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from transformers import TrainingArguments

from tests.launching import program
from tests.workshop.environment import ENVIRONMENT
from workshop.run_folder.errors import InputError
from workshop.settings import Settings
from workshop.training.weights_and_biases import hindrance, keep_wandb_local, report_summary, reporters

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


def test_report_to_takes_what_the_trainer_takes_and_wandb_only_where_it_can_be_used(monkeypatch, capsys) -> None:
    assert reporters(settings(REPORT_TO="tensorboard, mlflow")) == ["tensorboard", "mlflow"]
    assert reporters(settings()) == ["none"]
    assert reporters(settings(REPORT_TO="wandb", WANDB_MODE="disabled")) == ["none"]
    with pytest.raises(InputError, match="REPORT_TO: found 'wnadb'; expected out of azure_ml, "):
        reporters(settings(REPORT_TO="wnadb"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert reporters(settings(REPORT_TO="wandb")) == ["none"]
    assert "wandb is not installed" in capsys.readouterr().out


@pytest.mark.parametrize(("key", "why"), [("", f"no key for {NOBODY}"), (KEY, f"{NOBODY} does not answer")])
def test_online_without_a_key_or_an_answer_goes_on_offline(monkeypatch, capsys, key: str, why: str) -> None:
    monkeypatch.setenv("WANDB_API_KEY", key)
    arguments = TrainingArguments(report_to=["wandb"], use_cpu=True)
    keep_wandb_local(settings(REPORT_TO="wandb", WANDB_MODE="online"), arguments)
    assert (os.environ["WANDB_MODE"], os.environ["WANDB_DIR"]) == ("offline", ENVIRONMENT["RUN_DIR"])
    said = capsys.readouterr().out
    assert said.startswith(f"warning: WANDB_MODE=online, but {why}") and "going on offline" in said


def test_silent_server_is_given_up_and_the_run_says_how_to_send_it(
    monkeypatch, run_of_client, capsys, tmp_path
) -> None:
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


@pytest.mark.parametrize(
    ("client", "said"),
    [("exit 0", "sent\n"), ("exit 1", "(CalledProcessError); send"), ("exec sleep 600", "(TimeoutExpired); send")],
)
def test_hanging_or_failing_sync_is_a_line_not_a_failure(
    monkeypatch, run_of_client, capsys, tmp_path: Path, client: str, said: str
) -> None:
    monkeypatch.setattr("workshop.training.weights_and_biases.hindrance", lambda: "")
    program(tmp_path / "python", client)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    report_summary({}, timeout_s=0.3 if "sleep" in client else 60)
    assert said in capsys.readouterr().out
