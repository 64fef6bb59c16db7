"""Read the launcher's JSON, DeepSpeed's or FSDP's and DDP's: for preflight, training, operators and planner.

All of them refuse what the training refuses, in the same words.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from workshop.record.errors import InputError
from workshop.settings import deepspeed_config, fsdp_config
from workshop.settings.json_file import checked, read_json


@dataclass(frozen=True)
class Configuration:
    """Args: values: under today's names; notes: to print when a job starts."""

    is_deepspeed: bool
    values: dict[str, Any]
    notes: tuple[str, ...] = ()

    @property
    def needs_gpu(self) -> str:
        """The key that works on a GPU only, and what is expected without one; "" for none."""
        if self.values.get("version") == 1:
            return "version 1; expected version 2"
        if self.values.get("comm_hook") == "bf16":
            return "comm_hook bf16; expected fp16, or none"
        if self.values.get("compile", {}).get("deepcompile"):
            return "compile.deepcompile; expected it left out"
        offloaded = self.values.get("zero_optimization", {}).get("offload_optimizer", {})
        return "super_offload; expected it left out" if offloaded.get("super_offload") else ""


def read_configuration(
    path: Path,
    settings: Mapping[str, Any],
    world_size: int,
    takes: str = "any",
    trainer: bool = True,
    found: dict[str, Any] | None = None,
) -> Configuration:
    """Return the configuration that an exercise trains with.

    Args:
        settings: by their names in small letters, as in run.json.
        takes: deepspeed, fsdp or any: what its script takes; trainer: it trains with the Trainer.
        found: what the file will have; None: what it has.

    Raises:
        InputError: the file is no JSON, has a key that nothing reads, or cannot be trained as it is written.
    """
    found = read_json(path) if found is None else found
    is_deepspeed = bool(found.keys() & (deepspeed_config.KINDS.keys() - fsdp_config.COMMON.keys()))
    if takes == ("fsdp" if is_deepspeed else "deepspeed"):
        expected = (
            "one of FSDP, as of fsdp_configs/" if is_deepspeed else "one with zero_optimization, as of ds_configs/"
        )
        raise InputError(f"{path}: {'a' if is_deepspeed else 'no'} file of DeepSpeed; expected {expected}")
    if is_deepspeed:
        values, notes = deepspeed_config.read(path, found, settings, world_size, trainer)
        return Configuration(True, values, tuple(notes))
    if not trainer:
        values = checked(path, found, fsdp_config.BY_HAND)
        if "reshard_after_forward" not in values:
            raise InputError(f"{path}: found no reshard_after_forward, expected true or false")
        fsdp_config.check_copies(path, "replicas", values.get("replicas", 1), world_size)
        return Configuration(False, values)
    return Configuration(False, fsdp_config.read(path, found, settings, world_size))


class Sizes(NamedTuple):
    """A weak-scaling rule's sizes for one run; `batch_size`: sequences per GPU and step, in one micro-batch."""

    num_layers: int
    batch_size: int


def read_rule(path: Path) -> dict[int, Sizes]:
    """Return a rule of weak scaling: sizes by number of GPUs. Raises InputError for another file."""
    rule = read_json(path)
    gpus = rule["gpus"] if isinstance(rule.get("gpus"), dict) else {}
    if wrong := next((name for name in gpus if not name.isdecimal()), None):
        raise InputError(f"{path}: nothing reads 'gpus.{wrong}'; expected numbers of GPUs")
    at_least_1 = dict.fromkeys(Sizes._fields, 1)
    checked(path, {"gpus": None} | rule, {"rule": "text", "gpus": dict.fromkeys(gpus, at_least_1)})
    if lacking := next((name for name in gpus if gpus[name].keys() != at_least_1.keys()), None):
        raise InputError(f"{path}: gpus.{lacking} is {gpus[lacking]!r}; expected {' and '.join(at_least_1)}")
    return {int(name): Sizes(**sizes) for name, sizes in gpus.items()}
