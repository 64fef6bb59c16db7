"""Whatever W&B's server does, a job neither fails nor waits long."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.launching import program
from tests.workshop.environment import ENVIRONMENT
from workshop.run_folder.settings import Settings
from workshop.training.weights_and_biases import report_summary


@pytest.fixture
def run_of_client(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> SimpleNamespace:
    """What the client keeps of a run: its folder, its summary."""
    run = SimpleNamespace(dir=str(tmp_path / "wandb/offline-run-1/files"), summary={}, finish=lambda: None)
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(run=run))
    return run


def settings(**changed: str) -> Settings:
    return Settings.from_environment(ENVIRONMENT | changed, Path("none"))


def test_run_says_how_to_send_it(run_of_client, capsys, tmp_path: Path) -> None:
    report_summary(settings(), {"avg_gpu_util_%": 1.5})
    assert run_of_client.summary == {"avg_gpu_util_%": 1.5}
    command = f"wandb sync {tmp_path}/wandb/offline-run-1"
    assert capsys.readouterr().out == f"Weights & Biases: offline; send it with `{command}`\n"


def test_training_ends_well_although_the_clients_process_has_ended(run_of_client, capsys) -> None:
    def finish() -> None:
        raise ConnectionResetError("Connection lost")

    run_of_client.finish = finish
    report_summary(settings(), {})
    assert capsys.readouterr().out == "warning: Weights & Biases has no summary (ConnectionResetError)\n"


@pytest.mark.parametrize(
    ("client", "said"),
    [("exit 0", "sent\n"), ("exit 1", "(CalledProcessError); send"), ("exec sleep 600", "(TimeoutExpired); send")],
)
def test_hanging_or_failing_sync_is_a_line_not_a_failure(
    monkeypatch, run_of_client, capsys, tmp_path: Path, client: str, said: str
) -> None:
    program(tmp_path / "python", client)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    report_summary(settings(WANDB_MODE="online"), {}, timeout_s=0.3 if "sleep" in client else 60)
    assert said in capsys.readouterr().out
