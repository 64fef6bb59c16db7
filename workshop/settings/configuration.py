"""Read the launcher's JSON, DeepSpeed's or FSDP's and DDP's: for preflight, training, operators and planner.

All of them refuse what the training refuses, in the same words.
"""

import sys
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, NamedTuple

from workshop.record.errors import InputError, read_json
from workshop.record.exercises import declared, repository_of
from workshop.settings import deepspeed_config, fsdp_config
from workshop.settings.json_file import checked
from workshop.settings.offload import Offload
from workshop.settings.settings import Settings


@dataclass(frozen=True)
class Configuration:
    """A checked file. Args: content: its keys under today's names; notes: to print when a job starts."""

    is_deepspeed: bool
    content: Mapping[str, Any] = field(repr=False)
    notes: tuple[str, ...] = ()

    @property
    def values(self) -> dict[str, Any]:
        """A copy, which a library may change."""
        return deepcopy(self.content)

    @property
    def is_fsdp(self) -> bool:
        """False also for plain DDP, which `"fsdp": false` asks for."""
        return not self.is_deepspeed and self.content.get("fsdp", True)

    @property
    def offload(self) -> Offload:
        """What DeepSpeed keeps in CPU memory."""
        return Offload.of(self.content)

    @property
    def needs_gpu(self) -> str:
        """The key that works on a GPU only, and what is expected without one; "" for none."""
        if self.content.get("version") == 1:
            return "version 1; expected version 2"
        if self.content.get("comm_hook") == "bf16":
            return "comm_hook bf16; expected fp16, or none"
        deepcompile = self.content.get("compile", {}).get("deepcompile")
        return "compile.deepcompile; expected it left out" if deepcompile else ""


def read_configuration(
    path: Path,
    settings: Mapping[str, Any],
    world_size: int,
    takes: str = "any",
    trainer: bool = True,
    content: dict[str, Any] | None = None,
) -> Configuration:
    """Return the configuration that an exercise trains with.

    Args:
        settings: by their names in small letters, as in run.json.
        takes: deepspeed, fsdp or any: what its script takes; trainer: it trains with the Trainer.
        content: of the file as it will be; None: as it is.

    Raises:
        InputError: the file is no JSON, has a key that nothing reads, or cannot be trained as it is written.
    """
    content = read_json(path) if content is None else content
    is_deepspeed = bool(content.keys() & (deepspeed_config.KINDS.keys() - fsdp_config.COMMON.keys()))
    if takes == ("fsdp" if is_deepspeed else "deepspeed"):
        expected = (
            "one of FSDP, as of fsdp_configs/" if is_deepspeed else "one with zero_optimization, as of ds_configs/"
        )
        raise InputError(f"{path}: {'a' if is_deepspeed else 'no'} file of DeepSpeed; expected {expected}")
    if is_deepspeed:
        values, notes = deepspeed_config.checked_deepspeed(path, content, settings, world_size, trainer)
        return Configuration(True, values, tuple(notes))
    if not trainer:
        values = checked(path, content, fsdp_config.BY_HAND)
        if "reshard_after_forward" not in values:
            raise InputError(f"{path}: found no reshard_after_forward, expected true or false")
        fsdp_config.check_copies(path, "replicas", values.get("replicas", 1), world_size)
        return Configuration(False, values)
    return Configuration(False, fsdp_config.checked_fsdp(path, content, settings, world_size))


@cache
def configuration_of(settings: Settings) -> Configuration | None:
    """Return the configuration of the launcher's argument, which each process reads once.

    None without one, or for a rule of weak scaling. Raises InputError as `read_configuration` does.
    """
    start, exercise = settings.start, declared(settings.start.exercise)
    takes = exercise.takes(start.script)
    if not settings.config or takes == "rule":
        return None
    return read_configuration(Path(settings.config), vars(settings), start.processes, takes, exercise.trainer)


def check_configuration(settings: Settings) -> Configuration | None:
    """Return the configuration that is trained; None without one, or for a rule of weak scaling.

    Raises InputError for a mistake in the file, a script that takes no configuration or needs one, and settings that
    cannot be trained so.
    """
    start, exercise, script = settings.start, declared(settings.start.exercise), settings.start.script
    takes = exercise.takes(script)
    if exercise.scripts and script not in exercise.scripts:
        raise InputError(f"script '{script}': expected {' or '.join(exercise.scripts)}")
    settings.check_start()
    if takes == "none" and settings.config:
        raise InputError(f"{script} has no configuration, but '{settings.config}' was given")
    if takes in ("deepspeed", "fsdp") and not settings.config:
        files = sorted(str(file.relative_to(start.exercise)) for file in start.exercise.glob("*_configs/*.json"))
        has_array = any(launcher.array for launcher in exercise.launchers.values())
        array = ", or a job array, whose tasks are lines of submit.txt" if has_array else ""
        raise InputError(f"{script} needs a configuration{array}; expected one of {', '.join(files)}")
    configuration = configuration_of(settings)
    if settings.timers and not (configuration and configuration.is_deepspeed and exercise.trainer):
        raise InputError("TIMERS=true: the timers are DeepSpeed's; expected TIMERS=false here, or PROFILE=10:12")
    if configuration:
        if settings.weights == "bf16" and (configuration.is_deepspeed or configuration.is_fsdp):
            expected = "expected DDP, or one GPU alone"
            raise InputError(f"WEIGHTS=bf16: {settings.config} keeps fp32 weights beside; {expected}")
        settings.check_with(configuration)
    return configuration


def settings_class(exercise: Path) -> type[Settings]:
    """Return the settings class that an exercise declares, else the workshop's."""
    facts = declared(exercise)
    module, _, name = facts.settings.rpartition(".")
    for folder in facts.modules:  # whose settings this module imports
        settings_class(repository_of(exercise) / folder)
    if module and module not in sys.modules:
        spec = spec_from_file_location(module, exercise / f"{module.rpartition('.')[2]}.py")
        sys.modules[module] = module_from_spec(spec)
        spec.loader.exec_module(sys.modules[module])
    return getattr(sys.modules[module], name) if module else Settings


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
