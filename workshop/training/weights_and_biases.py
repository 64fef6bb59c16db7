"""Weights & Biases beside the local files: offline in the run's folder, so that no job waits for a server."""

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from transformers import TrainingArguments
from transformers.integrations import INTEGRATION_TO_CALLBACK, WandbCallback

from workshop.settings.settings import Settings


class LocalWandbCallback(WandbCallback):
    def on_log(self, *given: Any, **named: Any) -> None:
        """Report until W&B's process ends: SLURM's SIGTERM ends it, too, while the training still saves."""
        try:
            super().on_log(*given, **named)
        except Exception as error:
            print(f"warning: nothing goes to Weights & Biases any more ({type(error).__name__})", flush=True)
            self._wandb = None


def keep_wandb_local(settings: Settings, arguments: TrainingArguments) -> None:
    """Have W&B's client, the Trainer's or DeepSpeed's, write into the run's folder and talk to nobody."""
    INTEGRATION_TO_CALLBACK["wandb"] = LocalWandbCallback
    if "wandb" in arguments.report_to or (arguments.deepspeed or {}).get("wandb", {}).get("enabled"):
        run = {"WANDB_PROJECT": settings.experiment_name, "WANDB_RUN_ID": settings.run_dir.name}
        local = {"WANDB_DIR": str(settings.run_dir), "WANDB_MODE": settings.wandb_mode}
        os.environ |= {"WANDB_RESUME": "allow"} | run | os.environ | local


def report_summary(summary: dict[str, Any]) -> None:
    """Add summary.json's figures to the run, on the rank that reports, and say how to send it."""
    if (run := getattr(sys.modules.get("wandb"), "run", None)) and not run.disabled:
        print(f"Weights & Biases: offline; send it with `wandb sync {Path(run.dir).parent}`")
        with suppress(Exception):  # its process has ended
            run.summary.update(summary)
            run.finish()
