"""Weights & Biases beside the local files, which have every figure: nobody needs an account or a network.

A run is always written into the run's own folder first and sent at its end, by a process that is given up if it
hangs: a client that talks to its server during the training makes the job wait when the network goes away.
"""

import importlib.util
import netrc
import os
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from transformers import TrainingArguments
from transformers.integrations import INTEGRATION_TO_CALLBACK

from workshop.errors import WorkshopError
from workshop.settings import Settings

ANSWER_TIMEOUT_S = 5
SYNC_TIMEOUT_S = 120


def reporters(settings: Settings) -> list[str]:
    """REPORT_TO as the Trainer takes it: names with commas between, `none` or `all`.

    Raises WorkshopError for a name the Trainer does not know.
    """
    names = [name for name in settings.report_to.replace(" ", "").split(",") if name]
    unknown = set(names) - {*INTEGRATION_TO_CALLBACK, "none", "all"}
    if unknown:
        known = ", ".join([*sorted(INTEGRATION_TO_CALLBACK), "none", "all"])
        raise WorkshopError(f"REPORT_TO='{settings.report_to}': found {sorted(unknown)[0]!r}; expected out of {known}")
    if "wandb" in names and settings.wandb_mode == "disabled":
        names.remove("wandb")
    if "wandb" in names and importlib.util.find_spec("wandb") is None:
        print("warning: REPORT_TO=wandb, but wandb is not installed (pip install wandb); going on with the local files")
        names.remove("wandb")
    return names or ["none"]


def keep_wandb_local(settings: Settings, arguments: TrainingArguments) -> None:
    """Where the run reports to W&B, its client writes into the run's folder and talks to nobody during the training."""
    if "wandb" not in arguments.report_to:
        return
    os.environ["WANDB_DIR"] = str(settings.run_dir)
    os.environ.setdefault("WANDB_PROJECT", settings.experiment_name)
    # A run that goes on is the same run there. Its steps that were done twice are in it twice; steps.csv has them once.
    os.environ.setdefault("WANDB_RUN_ID", settings.run_dir.name)
    os.environ.setdefault("WANDB_RESUME", "allow")
    os.environ["WANDB_MODE"] = "disabled" if settings.wandb_mode == "disabled" else "offline"
    first = os.environ.get("RANK", "0") == "0"
    if settings.wandb_mode == "online" and first and not (has_key() and server_answers()):
        print(f"warning: WANDB_MODE=online, but {base_url()} does not answer or there is no key; going on offline")


def report_summary(settings: Settings, summary: dict[str, Any]) -> None:
    """The figures of summary.json into the run's summary, on the rank that has the run; then send an offline run."""
    run = getattr(sys.modules.get("wandb"), "run", None)
    if run is None:
        return
    folder = Path(run.dir).parent
    run.summary.update(summary)
    run.finish()
    print(sync(folder))


def sync(folder: Path) -> str:
    """Send an offline run; returns a line that says what became of it."""
    command = f"wandb sync {folder}"
    if not has_key():
        return f"Weights & Biases: offline; no key (WANDB_API_KEY or netrc); send it later with `{command}`"
    if not server_answers():
        return f"Weights & Biases: offline; {base_url()} does not answer; send it later with `{command}`"
    try:
        subprocess.run(
            [sys.executable, "-m", "wandb", "sync", str(folder)],
            env=os.environ | {"WANDB_MODE": "online"},
            check=True,
            capture_output=True,
            timeout=SYNC_TIMEOUT_S,
        )
    except (subprocess.SubprocessError, OSError) as error:
        return f"Weights & Biases: sending failed ({type(error).__name__}); try `{command}`"
    return "Weights & Biases: sent"


def base_url() -> str:
    return os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai")


def has_key() -> bool:
    """Whether there is a key to log in with: in the environment or in ~/.netrc."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    try:
        return netrc.netrc().authenticators(urlsplit(base_url()).hostname or "") is not None
    except (OSError, netrc.NetrcParseError):
        return False


def server_answers() -> bool:
    """Whether the server answers anything at all within a few seconds; through a proxy where one is set."""
    try:
        urllib.request.urlopen(base_url(), timeout=ANSWER_TIMEOUT_S).close()
    except urllib.error.HTTPError:
        return True
    except (OSError, ValueError):
        return False
    return True
