"""Weights & Biases beside the local files, which have every figure: nobody needs an account or a network.

The Trainer's callback writes into the run's folder, offline: a client that talks to its server makes a job wait when
the network goes away. The run is sent at its end, by a process with a time limit.
"""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import requests
from transformers import TrainingArguments
from transformers.integrations import INTEGRATION_TO_CALLBACK

from workshop.run_folder.errors import InputError
from workshop.settings import Settings


def reporters(settings: Settings) -> list[str]:
    """REPORT_TO as the Trainer takes it. Raises InputError for a name that it does not know."""
    names = [name for name in settings.report_to.replace(" ", "").split(",") if name]
    known = [*sorted(INTEGRATION_TO_CALLBACK), "none", "all"]
    if unknown := [name for name in names if name not in known]:
        raise InputError(f"REPORT_TO: found {unknown[0]!r}; expected out of {', '.join(known)}")
    if "wandb" in names and not importlib.util.find_spec("wandb"):
        print("warning: REPORT_TO=wandb, but wandb is not installed (pip install wandb); going on with the local files")
        names.remove("wandb")
    return [name for name in names if name != "wandb" or settings.wandb_mode != "disabled"] or ["none"]


def keep_wandb_local(settings: Settings, arguments: TrainingArguments) -> None:
    """Where the run, or DeepSpeed's monitor, reports to W&B, its client writes into the run's folder and talks to
    nobody during the training.
    """
    if "wandb" in arguments.report_to or (arguments.deepspeed or {}).get("wandb", {}).get("enabled"):
        os.environ.setdefault("WANDB_PROJECT", settings.experiment_name)
        # A run that goes on is the same run there. Its steps that were done twice are in it twice, in steps.csv once.
        os.environ.setdefault("WANDB_RUN_ID", settings.run_dir.name)
        os.environ.setdefault("WANDB_RESUME", "allow")
        os.environ["WANDB_DIR"] = str(settings.run_dir)
        os.environ["WANDB_MODE"] = settings.wandb_mode.replace("online", "offline")
        if settings.wandb_mode == "online" and os.environ.get("RANK", "0") == "0" and (why := hindrance()):
            print(f"warning: WANDB_MODE=online, but {why}; going on offline")


def report_summary(summary: dict[str, Any], timeout_s: float = 120) -> None:
    """The figures of summary.json into the run's summary, on the rank that has the run; then send it."""
    if run := getattr(sys.modules.get("wandb"), "run", None):
        folder = Path(run.dir).parent
        run.summary.update(summary)
        run.finish()
        if not (why := hindrance()):
            command = [sys.executable, "-m", "wandb", "sync", str(folder)]
            try:
                environ = os.environ | {"WANDB_MODE": "online"}
                subprocess.run(command, env=environ, check=True, capture_output=True, timeout=timeout_s)
            except (subprocess.SubprocessError, OSError) as error:
                why = f"sending failed ({type(error).__name__})"
        print("Weights & Biases:", f"offline; {why}; send it later with `wandb sync {folder}`" if why else "sent")


def hindrance(timeout_s: float = 5) -> str:
    """Why nothing can be sent now; empty if it can."""
    url = os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai")
    if not os.environ.get("WANDB_API_KEY") and not requests.utils.get_netrc_auth(url):
        return f"no key for {url} (WANDB_API_KEY or netrc)"
    try:
        requests.head(url, timeout=timeout_s)  # any answer will do
    except requests.RequestException:
        return f"{url} does not answer"
    return ""
