"""What a run will do, from its settings: the step to simulate, and the strategy that places its states.

The settings are those of run.json, or what `submit` finds for a line (tools/submit): the same names either way.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.errors import InputError
from tools.logs.run import Run, read_object
from tools.plan.memory import Strategy
from tools.tables.repository import ROOT

# custom_model's; its name is a default of its settings there.
_GPT = "simple-gpt"
_GPT_SIZES = ("vocab_size", "hidden_size", "num_layers", "num_heads", "ff_dim", "seq_length")
# The ladder's switches that change the model, and their values in the library's own way.
_USUAL = {"attention": "eager", "loss": "full", "stream": "fp32", "logits": "all", "packing": False, "compile": False}
_LOSS_CHUNK = 4096
# Positions whose next token is a target, of all positions of packed rows: the most in a step of any reference run
# (logit_positions / tokens of steps.csv, rungs 11 of logs/reference: 0.0305 to 0.0347).
LABELLED_SHARE = 0.0335


@dataclass(frozen=True)
class Workload:
    """Attributes: shape: the fields of workshop.step_on_meta.StepShape; strategy: where the states lie."""

    shape: dict[str, Any]
    strategy: Strategy

    @property
    def step_key(self) -> str:
        return json.dumps(self.shape, sort_keys=True)

    @property
    def key(self) -> str:
        """Equal for runs that do the same."""
        return json.dumps([self.shape, vars(self.strategy)], sort_keys=True)


def of_run(run: Run) -> Workload:
    """Of a run that was recorded. Raises InputError where its record does not say enough."""
    record = run.record
    if not record.get("settings") or not run.facts["world_size"]:
        raise InputError(f"{run.folder}/run.json: no settings or no number of ranks; expected both")
    name = record.get("config")
    if "train.py" not in record.get("command", []):
        raise InputError(f"{run.folder}/run.json: its command starts no train.py, the one training that is simulated")
    config = _config(ROOT / record["exercise"], name) if name else None
    return of_settings(record["settings"], config, run.facts["world_size"])


def _config(exercise: Path, name: str) -> dict[str, Any] | None:
    """The configuration of that name; None for one that is no JSON, as a sweep's."""
    # Not **, which follows no links: an exercise may link to another's configurations.
    places = [(exercise, ""), (exercise, "*/"), (exercise, "*/*/"), (exercise, "ds_"), (ROOT, "*/ds_configs/")]
    found = [path for folder, depth in places for path in sorted(folder.glob(f"{depth}{name}.json"))]
    return read_object(found[0]) if found else None


def of_settings(settings: Mapping[str, Any], config: dict[str, Any] | None, world_size: int) -> Workload:
    """Args: config: the launcher's JSON, of DeepSpeed or FSDP; None without one."""
    precision = "fp16" if settings["fp16"] else "bf16" if settings["bf16"] else "fp32"
    method = _method(settings, config, world_size)
    strategy = Strategy(method, world_size, settings["grad_acc"], precision != "fp32", config or {})
    name = _GPT if "ff_dim" in settings else settings["model_name"].rstrip("/").rsplit("/", 1)[-1]
    shape: dict[str, Any] = {
        "model_name": name,
        "batch_size": settings["batch_size"],
        "max_length": settings["max_length"],
        "engine": "half" if method.startswith(("zero", "fsdp")) else "autocast",
        "precision": precision,
        "gradient_checkpointing": bool(
            settings.get("gradient_checkpointing") or strategy.config.get("activation_checkpointing")
        ),
    }
    if name == _GPT:
        shape["module"] = "custom_model.model"
        shape["sizes"] = {size: settings[size] for size in _GPT_SIZES}
    switches = {switch: settings.get(switch, usual) for switch, usual in _USUAL.items()}
    if switches != _USUAL:
        labelled = switches.pop("logits") == "labelled"
        positions = settings["batch_size"] * settings["max_length"]
        chunk = settings.get("loss_chunk") or _LOSS_CHUNK
        shape |= switches | {"fast": True, "loss_chunk": chunk, "labelled": int(LABELLED_SHARE * positions * labelled)}
    return Workload(shape, strategy)


def _method(settings: Mapping[str, Any], config: dict[str, Any] | None, world_size: int) -> str:
    if config and "zero_optimization" in config:
        return f"zero{config['zero_optimization'].get('stage', 0)}"
    if settings.get("use_fsdp") or (config and config.get("fsdp", True)):
        return f"fsdp{(config or {}).get('version', 2)}"
    return "ddp" if config or world_size > 1 else "none"
