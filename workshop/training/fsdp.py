"""FSDP's configuration for the Trainer, and settings for which the Trainer has no argument."""

from dataclasses import replace
from typing import Any

import torch
from accelerate import PartialState
from accelerate.parallelism_config import ParallelismConfig
from accelerate.utils import DDPCommunicationHookType, DistributedType
from torch.distributed.fsdp import CPUOffloadPolicy
from transformers import Trainer, TrainingArguments

from workshop.private_names import set_optimize_ddp
from workshop.settings.configuration import configuration_of
from workshop.settings.settings import Settings
from workshop.training.deepspeed import deepspeed_config


def fsdp_config(settings: Settings) -> tuple[dict[str, Any] | None, ParallelismConfig | None]:
    """Return the launcher's JSON for the Trainer, and the mesh of ranks for HYBRID_SHARD (HSDP).

    Both are None for plain DDP. Raises InputError as `configuration_of` does.
    """
    configuration = configuration_of(settings)
    if not configuration.is_fsdp:
        return None, None
    config = {name: value for name, value in configuration.values.items() if name != "fsdp"}
    replicas, ranks = config.pop("dp_replicate_size", 1), settings.start.processes
    if replicas == 1:
        return config, None
    # A 2-D mesh: rows hold one sharded copy each, columns add up its gradients. torchrun numbers the ranks node by
    # node, so with as many copies as nodes all sharding traffic stays inside a node.
    return config, ParallelismConfig(dp_replicate_size=replicas, dp_shard_size=ranks // replicas)


def sharding_arguments(settings: Settings, gpu: bool) -> dict[str, Any]:
    """Return the Trainer's arguments for the launcher's DDP, FSDP or ZeRO configuration; {} without one.

    Raises InputError naming the file for what cannot work.
    """
    if not (configuration := configuration_of(settings)):
        return {}
    if configuration.is_deepspeed:
        return {"deepspeed": deepspeed_config(settings)}
    config, mesh = fsdp_config(settings)
    if config is None:
        return {"ddp_find_unused_parameters": False}  # the model uses all of them, no search in every step
    backend = {"ddp_backend": "cpu:gloo,cuda:nccl"} if gpu else {}  # NCCL cannot clip gradients in CPU memory
    return {"fsdp": True, "fsdp_config": config, "parallelism_config": mesh, **backend}


def prepare_wrapping(settings: Settings, trainer: Trainer) -> None:
    """Set DDP's options; under FSDP2 the first scale of fp16 and the loss's precision."""
    start_scaler(trainer)
    keep_the_loss_exact(trainer)
    configuration = configuration_of(settings)
    if not configuration or configuration.is_deepspeed or configuration.is_fsdp:
        return
    options = configuration.values
    del options["fsdp"]
    hook = DDPCommunicationHookType(options.pop("comm_hook", "no"))
    if "optimize_ddp" in options:
        set_optimize_ddp(options.pop("optimize_ddp"))
    for option, value in (options | {"comm_hook": hook}).items():
        setattr(trainer.accelerator.ddp_handler, option, value)


def shard_without_gpu(arguments: TrainingArguments) -> None:
    """Let FSDP shard over gloo where there is no GPU; call it before the Trainer is made.

    accelerate supports FSDP on accelerators only: it would silently run DDP.
    """
    if torch.cuda.is_available():
        return
    PartialState().distributed_type = DistributedType.MULTI_GPU
    plugin = arguments.fsdp_plugin_args
    if plugin.get("cpu_offload"):
        plugin["cpu_offload"] = CPUOffloadPolicy(pin_memory=False)  # there is no GPU to pin the memory for


def start_scaler(trainer: Trainer) -> None:
    """With fp16, give the gradient scaler its scale before the first loss is scaled.

    To resume, PyTorch takes a step of FSDP2's optimizer without gradients before it loads it, and a scaler without a
    scale refuses that (found on two H200).
    """
    if trainer.is_fsdp_enabled and trainer.accelerator.scaler is not None:
        trainer.accelerator.scaler.scale(torch.zeros((), device=trainer.args.device))


def keep_the_loss_exact(trainer: Trainer) -> None:
    """Have FSDP2 return the loss in fp32, as DDP does: accelerate lets it round all outputs, so 12.08 became 12.125.

    Gradients are the same, and logits are in half precision without this cast.
    """
    plugin = trainer.accelerator.state.fsdp_plugin if trainer.is_fsdp_enabled else None
    if plugin and plugin.fsdp_version == 2 and plugin.mixed_precision_policy:  # none in fp32
        plugin.mixed_precision_policy = replace(plugin.mixed_precision_policy, output_dtype=None)


def save_whole_model(trainer: Trainer) -> None:
    """Save the gathered model by one rank: with SHARDED_STATE_DICT the Trainer would save no final model."""
    if trainer.is_fsdp_enabled:
        trainer.accelerator.state.fsdp_plugin.set_state_dict_type("FULL_STATE_DICT")
    trainer.save_model()
