"""Weights & Biases beside the local files: offline in the run's folder, so that no job waits for a server."""

import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import wandb
from transformers import TrainingArguments
from transformers.integrations import INTEGRATION_TO_CALLBACK, WandbCallback

from workshop.record.errors import InputError
from workshop.settings.settings import Settings


class LocalWandbCallback(WandbCallback):
    def on_log(self, *given: Any, **named: Any) -> None:
        """Report until W&B's process ends: SLURM's SIGTERM ends it, too, while the training still saves."""
        try:
            super().on_log(*given, **named)
        except Exception as error:
            print(f"warning: nothing goes to Weights & Biases any more ({type(error).__name__})", flush=True)
            self.on_log = lambda *_, **__: None


def open_run(settings: Settings, arguments: TrainingArguments) -> None:
    """Open W&B's run on rank 0, which the Trainer's callback and DeepSpeed's monitor then take for theirs."""
    INTEGRATION_TO_CALLBACK["wandb"] = LocalWandbCallback
    if arguments.process_index == 0:
        ours, name = sys.excepthook, settings.run_dir.name
        # Of all runs that this process opens: else DeepSpeed's monitor would ask for a key, and write elsewhere.
        wandb.setup(wandb.Settings(mode=settings.wandb_mode, root_dir=str(settings.run_dir)))
        wandb.init(id=name, name=name, resume="allow")
        theirs = sys.excepthook  # prints every traceback
        sys.excepthook = lambda kind, *of: (ours if issubclass(kind, InputError) else theirs)(kind, *of)


def report_summary(summary: dict[str, Any]) -> None:
    """Add summary.json's figures to the run, on the rank that reports, and say how to send it."""
    if (run := wandb.run) and not run.disabled:
        print(f"Weights & Biases: offline; send it with `wandb sync {Path(run.dir).parent}`")
        with suppress(Exception):  # its process has ended
            run.summary.update(summary)
            run.finish()
