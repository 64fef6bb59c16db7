"""The settings of the three scripts and their configuration files, checked without torch."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

from custom_model.settings import MODEL_NAME, GPTSettings
from run_folder.plural import counted
from run_folder.settings import setting
from workshop.errors import WorkshopError
from workshop.training.deepspeed import check_keys, read_json, world_size


@dataclass(frozen=True, kw_only=True)
class ByHandSettings(GPTSettings):
    """The settings of the custom model; MODEL_NAME may also be a BLOOM, as in the other chapters."""

    model_name: str = setting(default=MODEL_NAME)

    not_shown = ("gradient_checkpointing", "resume_from")

    def check(self) -> None:
        super().check()
        if self.fp16:
            raise WorkshopError("FP16=true: fp16 needs a gradient scaler, which is not shown here; expected BF16=true")
        for name in self.not_shown:
            if value := getattr(self, name):
                raise WorkshopError(f"{name.upper()}={value}: the scripts do not show it; expected it to be left out")

    def check_config(self) -> None:
        if not self.config:  # ddp.py
            return
        if "zero_optimization" in read_json(Path(self.config)):
            zero_json(self)
        else:
            FSDPConfig.read(self, world_size())


@dataclass(frozen=True)
class FSDPConfig:
    """A file of fsdp_configs/. `replicas` copies of the model, each sharded over world_size / replicas ranks."""

    reshard_after_forward: bool
    replicas: int = 1
    cpu_offload: bool = False
    world_size: int = 1

    @classmethod
    def read(cls, settings: ByHandSettings, world_size: int) -> Self:
        """Raises WorkshopError naming the file for a key nothing reads, a wrong type, or ranks that cannot be split."""
        path = Path(settings.config)
        found = read_json(path)
        kinds = {item.name: item.type for item in fields(cls) if item.name != "world_size"}
        for key, value in found.items():
            if type(value) is not kinds.get(key):
                expected = ", ".join(f"{name} ({kind.__name__})" for name, kind in kinds.items())
                raise WorkshopError(f"{path}: {key} is {value!r}; expected keys out of {expected}")
        if "reshard_after_forward" not in found:
            raise WorkshopError(f"{path}: found no reshard_after_forward, expected true or false")
        config = cls(**found, world_size=world_size)
        if world_size % config.replicas or (config.replicas > 1 and world_size // config.replicas < 2):
            raise WorkshopError(
                f"{path}: {config.replicas} replicas of {counted(world_size, 'GPU')}; expected GPUs in a multiple of "
                "it, at least twice as many"
            )
        return config

    @property
    def mesh_shape(self) -> tuple[int, ...]:
        """Ranks as (shards,), or (replicas, shards): neighbours, on one node, share a copy."""
        shards = self.world_size // self.replicas
        return (self.replicas, shards) if self.replicas > 1 else (shards,)

    @property
    def mesh_names(self) -> tuple[str, ...]:
        return ("replicate", "shard") if self.replicas > 1 else ("shard",)

    def as_record(self) -> dict[str, Any]:
        """For run.json's `sharding`."""
        return {name: getattr(self, name) for name in ("reshard_after_forward", "replicas", "cpu_offload")}


def zero_json(settings: ByHandSettings) -> dict[str, Any]:
    """A file of ds_configs/. Raises WorkshopError as the other chapters do for one that contradicts the settings."""
    path = Path(settings.config)
    config = read_json(path)
    check_keys(path, config, settings)
    if "stage" not in config.get("zero_optimization", {}):
        raise WorkshopError(f"{path}: found no zero_optimization.stage, expected 0, 1, 2 or 3")
    return config
