"""The launcher's argument as the Trainer's arguments: for exercises that take DDP, FSDP and ZeRO configurations."""

from pathlib import Path
from typing import Any

from workshop.settings import Settings
from workshop.training.deepspeed import deepspeed_config, read_json
from workshop.training.fsdp import fsdp_config


def sharding_arguments(settings: Settings, gpu: bool) -> dict[str, Any]:
    """None on one GPU without a configuration; those of a ZeRO configuration, an FSDP or DDP one.

    Raises WorkshopError naming the file for what cannot work.
    """
    if not settings.config:
        return {}
    if "zero_optimization" in read_json(Path(settings.config)):  # DeepSpeed's, wherever it lies
        return {"deepspeed": deepspeed_config(settings)}
    config, mesh = fsdp_config(settings)
    if config is None:
        return {"ddp_find_unused_parameters": False}  # DDP: the model uses all of them, no search in every step
    backend = {"ddp_backend": "cpu:gloo,cuda:nccl"} if gpu else {}  # NCCL cannot clip gradients in CPU memory
    return {"fsdp": True, "fsdp_config": config, "parallelism_config": mesh, **backend}
