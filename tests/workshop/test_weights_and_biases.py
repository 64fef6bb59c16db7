"""Whatever W&B's server does, a job neither fails nor waits long."""

import socket
import subprocess
from pathlib import Path

import pytest
from transformers import TrainingArguments

from tests.workshop.environment import ENVIRONMENT
from workshop import weights_and_biases
from workshop.errors import WorkshopError
from workshop.settings import Settings
from workshop.weights_and_biases import has_key, keep_wandb_local, reporters, server_answers, sync


@pytest.fixture(autouse=True)
def nobody(monkeypatch, tmp_path: Path) -> None:
    """No key, no proxy, and a port where nobody listens."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("WANDB_API_KEY", "WANDB_DIR", "WANDB_PROJECT", "http_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, "")  # so that what a test sets is undone
        monkeypatch.delenv(name)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")


def settings(**changed: str) -> Settings:
    return Settings.from_environment(ENVIRONMENT | changed, Path("none"))


def test_report_to_takes_what_the_trainer_takes() -> None:
    assert reporters(settings(REPORT_TO="tensorboard, mlflow")) == ["tensorboard", "mlflow"]
    assert reporters(settings()) == ["none"]
    assert reporters(settings(REPORT_TO="wandb", WANDB_MODE="disabled")) == ["none"]
    with pytest.raises(WorkshopError, match="REPORT_TO='wnadb': found 'wnadb'; expected out of"):
        reporters(settings(REPORT_TO="wnadb"))


def test_run_without_wandb_installed_goes_on(monkeypatch, capsys) -> None:
    monkeypatch.setattr(weights_and_biases.importlib.util, "find_spec", lambda name: None)
    assert reporters(settings(REPORT_TO="wandb")) == ["none"]
    assert "wandb is not installed" in capsys.readouterr().out


def test_online_without_an_answer_goes_on_offline(monkeypatch, capsys) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "k" * 40)
    keep_wandb_local(
        settings(REPORT_TO="wandb", WANDB_MODE="online"), TrainingArguments(report_to=["wandb"], use_cpu=True)
    )
    assert weights_and_biases.os.environ["WANDB_MODE"] == "offline"
    assert weights_and_biases.os.environ["WANDB_DIR"] == ENVIRONMENT["RUN_DIR"]
    assert "going on offline" in capsys.readouterr().out


def test_sync_says_what_is_missing_and_a_command_that_works_from_any_folder(monkeypatch, tmp_path: Path) -> None:
    assert "no key" in sync(tmp_path) and f"`wandb sync {tmp_path}`" in sync(tmp_path)
    monkeypatch.setenv("WANDB_API_KEY", "k" * 40)
    assert "does not answer" in sync(tmp_path)


def test_key_in_netrc_counts(tmp_path: Path) -> None:
    assert not has_key()
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login user password key\n")
    (tmp_path / ".netrc").chmod(0o600)
    assert has_key()


def test_silent_server_is_given_up(monkeypatch) -> None:
    monkeypatch.setattr(weights_and_biases, "ANSWER_TIMEOUT_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as server:  # accepts and says nothing
        monkeypatch.setenv("WANDB_BASE_URL", f"http://127.0.0.1:{server.getsockname()[1]}")
        assert not server_answers()  # else it would wait for the server without end


def test_hanging_or_failing_sync_is_a_line_not_a_failure(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "k" * 40)
    monkeypatch.setattr(weights_and_biases, "server_answers", lambda: True)
    for error in (subprocess.TimeoutExpired("wandb", 1), subprocess.CalledProcessError(1, "wandb")):

        def fail(*_: object, _error: Exception = error, **__: object) -> None:
            raise _error

        monkeypatch.setattr(weights_and_biases.subprocess, "run", fail)
        assert f"sending failed ({type(error).__name__})" in sync(tmp_path)
