"""From a line that `submit` takes to what it will do; lines, settings and launchers are read by tools/submit."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Any

from evidence.settings import DeclaredSettings
from tools.errors import InputError
from tools.logs.run import read_object
from tools.plan.workload import Workload, of_settings
from tools.submit.submissions import Submission
from tools.submit.submitted import effective_settings

# How a launcher names its configuration: start_run "${1:-ds_config.json}" or "${DS_CONFIG:-FILE}".
_CONFIG = re.compile(r'^start_run "\$\{(\w+):-([^}]*)\}"', re.MULTILINE)
_PARSE = {item.name: item.metadata["parse"] for item in fields(DeclaredSettings)}


def workload_of(submission: Submission) -> Workload | None:
    """What the line will do; None for a launcher that does not start a train.py, as by-hand's and the peers'.

    Raises:
        InputError: a setting that is not what it has to be.
    """
    if "train.py" not in (submission.exercise / submission.launcher).read_text():
        return None
    settings = {name: _value(submission, name, text) for name, text in effective_settings(submission).items()}
    world_size = submission.count("nodes") * submission.count("gpus-per-node")
    config = _config(submission)
    if config and "gpus" in config:  # weak scaling: the model and the batch follow from the number of GPUs
        settings |= {"grad_acc": 1} | config["gpus"].get(str(world_size), {})
        config = None
    return of_settings(settings, config, world_size)


def _value(submission: Submission, name: str, text: Any) -> Any:
    if not isinstance(text, str) or not text:
        return text  # a default
    if name not in _PARSE:  # an exercise's own: its type is seen
        return int(text) if text.isdecimal() else {"true": True, "false": False}.get(text.lower(), text)
    try:
        return _PARSE[name](text)
    except (ValueError, KeyError):
        expected = getattr(_PARSE[name], "expected", "text")
        raise InputError(f"{submission.place}: {name.upper()}='{text}': expected {expected}") from None


def _config(submission: Submission) -> dict[str, Any] | None:
    named = next((argument for argument in submission.arguments if argument.endswith(".json")), None)
    default = _CONFIG.search((submission.exercise / submission.launcher).read_text())
    if default and not named:
        named = submission.settings.get(default[1]) or default[2]
    return read_object(submission.exercise / named) if named else None
