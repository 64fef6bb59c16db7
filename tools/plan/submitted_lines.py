"""From a line that `submit` takes to what it will do, and whether it fits; tools/submit reads lines and settings."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from run_folder.settings import DeclaredSettings
from tools.errors import InputError
from tools.logs.folder import read_object
from tools.plan.gpus import Gpu
from tools.plan.predict import Prediction, predict
from tools.plan.workload import SCRIPTS, Workload, has_experts, of_settings
from tools.submit.submissions import Submission
from tools.submit.submitted import effective_settings

# How a launcher names its configuration: start_run "${1:-ds_config.json}" or "${DS_CONFIG:-FILE}".
_CONFIG = re.compile(r'^start_run "\$\{(\w+):-([^}]*)\}"', re.MULTILINE)
NOT_SIMULATED = "a line with peers, experts or a script of dimensions/ is not simulated"  # workload_of gives None
_PARSE = {item.name: item.metadata["parse"] for item in fields(DeclaredSettings)}


def workload_of(submission: Submission) -> Workload | None:
    """What the line will do; None if its launcher starts none of SCRIPTS, as for peers, or its model has experts.

    Raises:
        InputError: a setting that is not what it has to be.
    """
    script = _script(submission)
    if not script:
        return None
    settings = {name: _value(submission, name, text) for name, text in effective_settings(submission).items()}
    if has_experts(settings["model_name"]):
        return None
    nodes = submission.count("nodes")
    world_size = nodes * submission.count("gpus-per-node")
    config = _config(submission)
    if config and "gpus" in config:  # weak scaling: the model and the batch follow from the number of GPUs
        settings |= {"grad_acc": 1} | config["gpus"].get(str(world_size), {})
        config = None
    try:
        return of_settings(settings, config, world_size, nodes, script)
    except InputError as error:
        raise InputError(f"{submission.place}: {error}") from None


def _script(submission: Submission) -> str | None:
    """A launcher names the one that it starts, or takes its name as an argument, as by-hand's."""
    words = [*submission.arguments, *(submission.exercise / submission.launcher).read_text().split()]
    return next((word for word in words if word in SCRIPTS), None)


def check_node(submission: Submission, gpu: Gpu) -> None:
    """Raises InputError for no node, no GPU, or more GPUs than a node holds."""
    for option in ("nodes", "gpus-per-node"):
        if submission.count(option) < 1:
            raise InputError(f"{submission.place}: --{option}=0: expected at least 1")
    if (count := submission.count("gpus-per-node")) > gpu.per_node:
        raise InputError(
            f"{submission.place}: --gpus-per-node={count}: a node of {gpu.driver_name} holds {gpu.per_node}; "
            f"expected at most {gpu.per_node}, and more --nodes"
        )


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
    return read_object((submission.exercise / named).resolve()) if named else None


def predictions_of(lines: Sequence[Submission], gpu: Gpu) -> list[Prediction | InputError | None]:
    """One for each line: None if workload_of gives none, an error if it cannot be planned.

    Raises:
        InputError: a line asks for more GPUs than a node has.
    """
    workloads: list[Workload | InputError | None] = []
    for line in lines:
        check_node(line, gpu)
        try:
            workloads.append(workload_of(line))
        except InputError as error:
            workloads.append(error)
    found = iter(predict([one for one in workloads if isinstance(one, Workload)], gpu))
    return [next(found) if isinstance(one, Workload) else one for one in workloads]


def fits(lines: Sequence[Submission], gpu: Gpu) -> list[tuple[str, bool]]:
    """What to say of each line before it is queued, and whether it may fit. Raises as predictions_of."""
    return [_fit(one) for one in predictions_of(lines, gpu)]


def _fit(found: Prediction | InputError | None) -> tuple[str, bool]:
    if not isinstance(found, Prediction):
        return f"not planned: {found or NOT_SIMULATED}", True
    allocated, minutes = found.ranges["peak_allocated_mib"].expected, found.ranges["total_runtime_s"].expected / 60
    text = (
        f"{found.verdict}: {allocated:,.0f} MiB allocated of {found.gpu.memory_mib:,}, "
        f"{found.least_cpu_gib:,.0f} GiB of CPU memory of {found.gpu.node_gib:,.0f}, about {minutes:.1f} min"
    )
    return text, found.verdict != "does not fit"
