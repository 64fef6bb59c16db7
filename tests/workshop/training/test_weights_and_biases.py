"""Whatever happens to W&B's process, a training that reports to it ends well."""

from pathlib import Path
from types import SimpleNamespace

import wandb
from transformers.integrations import WandbCallback

from workshop.training.weights_and_biases import LocalWandbCallback, report_summary


def lost(*_: object, **__: object) -> None:
    raise ConnectionResetError("Connection lost")


def test_run_says_how_to_send_it_also_if_the_clients_process_has_ended(monkeypatch, capsys, tmp_path: Path) -> None:
    run = SimpleNamespace(dir=f"{tmp_path}/wandb/offline-run-1/files", summary={}, finish=lost, disabled=False)
    monkeypatch.setattr(wandb, "run", run)
    report_summary({"avg_gpu_util_%": 1.5})
    assert run.summary == {"avg_gpu_util_%": 1.5}
    command = f"wandb sync {tmp_path}/wandb/offline-run-1"
    assert capsys.readouterr().out == f"Weights & Biases: offline; send it with `{command}`\n"


def test_training_that_saves_after_slurm_has_ended_the_client_goes_on(monkeypatch, capsys) -> None:
    monkeypatch.setattr(WandbCallback, "on_log", lost)
    callback = LocalWandbCallback()
    callback.on_log()
    assert capsys.readouterr().out.startswith("warning: nothing goes to Weights & Biases any more (ConnectionReset")
    callback.on_log()
    assert capsys.readouterr().out == "", "the next line would be lost, too"
