"""Weights & Biases beside the local files, which have every figure: nobody needs an account or a network.

The Trainer's callback writes into the run's folder, offline: a client that talks to its server makes a job wait when
the network goes away. WANDB_MODE=online sends the run at its end, by a process with a time limit.
"""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from transformers import TrainingArguments
from transformers.integrations import INTEGRATION_TO_CALLBACK, WandbCallback

from workshop.run_folder.errors import InputError
from workshop.run_folder.settings import Settings


def reporters(settings: Settings) -> list[str]:
    """REPORT_TO as the Trainer takes it. Raises InputError for a name that it does not know."""
    names = [name for name in settings.report_to.replace(" ", "").split(",") if name]
    known = [*sorted(INTEGRATION_TO_CALLBACK), "none", "all"]
    if unknown := [name for name in names if name not in known]:
        raise InputError(f"REPORT_TO: found {unknown[0]!r}; expected out of {', '.join(known)}")
    if "wandb" in names and not importlib.util.find_spec("wandb"):
        print("warning: REPORT_TO=wandb, but wandb is not installed (pip install wandb); the local files have all")
        names.remove("wandb")
    return [name for name in names if name != "wandb" or settings.wandb_mode != "disabled"] or ["none"]


class LocalWandbCallback(WandbCallback):
    """Reports until W&B's process ends: SLURM's SIGTERM ends it, too, while the training still saves."""

    def on_log(self, *given: Any, **named: Any) -> None:
        try:
            super().on_log(*given, **named)
        except Exception as error:
            print(f"warning: nothing goes to Weights & Biases any more ({type(error).__name__})", flush=True)
            self._wandb = None  # as where it is not installed


def keep_wandb_local(settings: Settings, arguments: TrainingArguments) -> None:
    """Have W&B's client write into the run's folder and talk to nobody during the training.

    For runs that report to W&B themselves or by DeepSpeed's monitor.
    """
    INTEGRATION_TO_CALLBACK["wandb"] = LocalWandbCallback
    if "wandb" in arguments.report_to or (arguments.deepspeed or {}).get("wandb", {}).get("enabled"):
        os.environ.setdefault("WANDB_PROJECT", settings.experiment_name)
        # A resumed run is the same run there. Its repeated steps are in it twice, in steps.csv once.
        os.environ.setdefault("WANDB_RUN_ID", settings.run_dir.name)
        os.environ.setdefault("WANDB_RESUME", "allow")
        os.environ["WANDB_DIR"] = str(settings.run_dir)
        os.environ["WANDB_MODE"] = settings.wandb_mode.replace("online", "offline")


def report_summary(settings: Settings, summary: dict[str, Any], timeout_s: float = 120) -> None:
    """Add the figures of summary.json to the run, on the rank that has it; WANDB_MODE=online: send it then."""
    if not (run := getattr(sys.modules.get("wandb"), "run", None)):
        return
    folder, state = Path(run.dir).parent, "offline"
    try:
        run.summary.update(summary)
        run.finish()
    except Exception as error:
        return print(f"warning: Weights & Biases has no summary ({type(error).__name__})")
    if settings.wandb_mode == "online":
        options = {"env": os.environ | {"WANDB_MODE": "online"}, "stdin": subprocess.DEVNULL, "capture_output": True}
        try:
            command = [sys.executable, "-m", "wandb", "sync", str(folder)]
            subprocess.run(command, check=True, timeout=timeout_s, **options)
            return print("Weights & Biases: sent")
        except (subprocess.SubprocessError, OSError) as error:
            state = f"sending failed ({type(error).__name__})"
    print(f"Weights & Biases: {state}; send it with `wandb sync {folder}`")
