"""The settings of the three scripts and their configuration files, checked without torch."""

from dataclasses import dataclass
from typing import Any, Self

from custom_model.settings import MODEL_NAME, GPTSettings
from workshop.run_folder.configuration import BY_HAND
from workshop.run_folder.errors import InputError
from workshop.run_folder.settings import setting
from workshop.settings import Settings, configuration


@dataclass(frozen=True, kw_only=True)
class ByHandSettings(GPTSettings):
    """The settings of the custom model; MODEL_NAME may also be a BLOOM, as in the other chapters."""

    model_name: str = setting(default=MODEL_NAME)

    optimizers = ("adamw_torch_fused", "adamw_torch", "muon")
    not_shown = ("gradient_checkpointing", "resume_from")

    def check(self) -> None:
        super().check()
        if self.fp16:
            raise InputError("FP16=true: fp16 needs a gradient scaler, which is not shown here; expected BF16=true")
        for name in self.not_shown:
            if value := getattr(self, name):
                raise InputError(f"{name.upper()}={value}: the scripts do not show it; expected it to be left out")

    def check_config(self) -> None:
        Settings.check_config(self)


@dataclass(frozen=True)
class FSDPConfig:
    """A file of fsdp_configs/: `replicas` copies of the model, each sharded over world_size / replicas ranks."""

    reshard_after_forward: bool
    replicas: int = 1
    cpu_offload: bool = False
    world_size: int = 1

    @classmethod
    def read(cls, settings: ByHandSettings, world_size: int) -> Self:
        """Raises InputError naming the file for a key nothing reads, a wrong type, or ranks that cannot be split."""
        return cls(**configuration(settings, f"{BY_HAND}/fsdp.py", world_size).values, world_size=world_size)

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
