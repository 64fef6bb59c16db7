"""FSDP's configuration file, checked before anything is loaded.

The file holds the Trainer's own `fsdp_config`, and two keys more that select the method:

    fsdp               false: plain DDP, for comparison; beside it DDP's options, of which the Trainer knows half
    dp_replicate_size  HYBRID_SHARD: number of groups of ranks that each hold one whole, sharded copy of the model

The Trainer ignores a key it does not know, so older material that wrote `offload_to_cpu` or `mixed_precision` there got
neither (erratum K3). Here a key that nothing reads is an error, and so is one that the chosen version does not read.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from run_folder.plural import counted
from run_folder.settings import DeclaredSettings
from workshop.errors import WorkshopError
from workshop.training.deepspeed import deepspeed_config, read_json, world_size

if TYPE_CHECKING:  # torch with them; the launcher checks a file without it
    from accelerate.parallelism_config import ParallelismConfig
    from transformers import Trainer, TrainingArguments


# What reads each key, and the values it may have: types, or the strings allowed.
COMMON = {
    "fsdp": bool,
    "version": (1, 2),
    "cpu_offload": bool,
    "auto_wrap_policy": ("TRANSFORMER_BASED_WRAP",),  # with any other, blocks would be no units (erratum K2)
    "transformer_layer_cls_to_wrap": list,
    "cpu_ram_efficient_loading": bool,
    "state_dict_type": ("FULL_STATE_DICT", "SHARDED_STATE_DICT"),
    "activation_checkpointing": bool,
}
BY_VERSION: dict[int, dict[str, Any]] = {
    1: {
        "reshard_after_forward": ("full_shard", "shard_grad_op", "no_shard"),
        "forward_prefetch": bool,
        "backward_prefetch": ("BACKWARD_PRE", "BACKWARD_POST", "NO_PREFETCH"),
        "use_orig_params": bool,
        "sync_module_states": bool,
        "limit_all_gathers": bool,
    },
    2: {"reshard_after_forward": bool, "dp_replicate_size": int},
}
# Of DistributedDataParallel; comm_hook: the type in which gradients are communicated, where they are fp32.
# optimize_ddp is torch.compile's: cut a compiled graph where DDP's buckets end. Our blocks are small graphs already.
DDP = {
    **{"bucket_cap_mb": int, "gradient_as_bucket_view": bool, "static_graph": bool, "optimize_ddp": bool},
    "comm_hook": ("fp16", "bf16"),
}
OTHER_NAMES = {
    **{"offload_to_cpu": "cpu_offload", "mixed_precision": "FP16 or BF16 in env_vars.sh"},
    **dict.fromkeys(DDP, '"fsdp": false beside it, because it is DDP\'s'),
}


def fsdp_config(settings: DeclaredSettings) -> tuple[dict[str, Any] | None, ParallelismConfig | None]:
    """The JSON the launcher was given, as the Trainer wants it, and the mesh of ranks for HYBRID_SHARD.

    Both are None for plain DDP. Raises WorkshopError as `checked_json` does.
    """
    config = checked_json(settings)
    if not config.pop("fsdp", True):
        return None, None
    replicas = config.pop("dp_replicate_size", 1)
    if replicas == 1:
        return config, None
    from accelerate.parallelism_config import ParallelismConfig

    # A 2-D mesh: rows hold one sharded copy each, columns add up its gradients. torchrun numbers the ranks node by
    # node, so with as many copies as nodes all sharding traffic stays inside a node.
    return config, ParallelismConfig(dp_replicate_size=replicas, dp_shard_size=world_size() // replicas)


def sharding_arguments(settings: DeclaredSettings, gpu: bool) -> dict[str, Any]:
    """The launcher's argument as the Trainer's arguments, for exercises that take DDP, FSDP and ZeRO configurations.

    None without one. Raises WorkshopError naming the file for what cannot work.
    """
    if not settings.config:
        return {}
    if "zero_optimization" in read_json(Path(settings.config)):
        return {"deepspeed": deepspeed_config(settings)}
    config, mesh = fsdp_config(settings)
    if config is None:
        return {"ddp_find_unused_parameters": False}  # the model uses all of them, no search in every step
    backend = {"ddp_backend": "cpu:gloo,cuda:nccl"} if gpu else {}  # NCCL cannot clip gradients in CPU memory
    return {"fsdp": True, "fsdp_config": config, "parallelism_config": mesh, **backend}


def checked_json(settings: DeclaredSettings) -> dict[str, Any]:
    """The file with its version. Raises WorkshopError, without torch, naming the file and the key for anything that
    would be ignored or cannot work.
    """
    path = Path(settings.config)
    config = read_json(path)
    check_keys(path, config)
    if settings.timers:
        raise WorkshopError("TIMERS=true: the timers are DeepSpeed's; expected TIMERS=false here, or PROFILE=10:12")
    if config.get("static_graph") and settings.grad_acc > 1:
        # DDP stops with an internal error (torch 2.13): it learns the graph from the first backward pass, which with
        # accumulation communicates nothing.
        raise WorkshopError(f"GRAD_ACC={settings.grad_acc}: {path} has static_graph; expected GRAD_ACC=1")
    if not config.get("fsdp", True):
        return config
    config.setdefault("version", 2)
    if config["version"] == 1 and config.get("cpu_offload") and settings.fp16 and "fused" in settings.optimizer:
        # Found on the GPU: the scaler's overflow flag has another shape than the CPU's fused step takes (torch 2.13).
        raise WorkshopError(
            f"OPTIMIZER={settings.optimizer}: {path} is FSDP1 with cpu_offload, where fp16 gradient scaling cannot "
            "drive a fused optimizer on the CPU; expected OPTIMIZER=adamw_torch, BF16=true, or version 2"
        )
    if settings.gradient_checkpointing:
        raise WorkshopError(
            f'GRADIENT_CHECKPOINTING=true: under FSDP set "activation_checkpointing": true in {path}; the '
            "Trainer's own would gather every block once more in the backward pass"
        )
    ranks, replicas = world_size(), config.get("dp_replicate_size", 1)
    if replicas > 1 and (ranks % replicas or ranks // replicas < 2):
        raise WorkshopError(
            f"{path}: dp_replicate_size is {replicas}, which cannot split {counted(ranks, 'GPU')} into groups of "
            f"equally many, at least two; expected GPUs in a multiple of {replicas}, {2 * replicas} or more"
        )
    return config


def check_keys(path: Path, config: dict[str, Any]) -> None:
    """Raises WorkshopError for a key that nothing reads or a value that does not fit."""
    version = config.get("version", 2)
    readable, where = {**COMMON, **BY_VERSION.get(version, {})}, f"in FSDP{version}"
    if not config.get("fsdp", True):
        readable, where = {"fsdp": bool, **DDP}, 'where "fsdp" is false'
    for key, value in config.items():
        if key not in readable:
            expected = OTHER_NAMES.get(key, f"keys out of {', '.join(sorted(readable))}")
            raise WorkshopError(f"{path}: nothing reads '{key}' {where}; expected {expected}")
        allowed = readable[key]
        if not (type(value) is allowed if isinstance(allowed, type) else value in allowed):
            expected = {bool: "true or false", int: "a whole number", list: "a list of class names"}.get(allowed)
            expected = expected or " or ".join(map(str, allowed))
            raise WorkshopError(f"{path}: {key} is {value!r}; expected {expected}")


def shard_on_cpu(settings: DeclaredSettings, arguments: TrainingArguments) -> None:
    """Let accelerate shard over gloo; it knows FSDP for accelerators only and would silently run DDP.

    Call it before the Trainer is made. Plain DDP needs none of it.
    """
    import torch

    if torch.cuda.is_available() or not arguments.fsdp:
        return
    from accelerate import PartialState
    from accelerate.utils import DistributedType
    from torch.distributed.fsdp import CPUOffloadPolicy

    plugin = arguments.fsdp_plugin_args
    if plugin["fsdp_version"] == 1:
        raise WorkshopError(f"{settings.config}: FSDP1 needs a GPU, and there is none; expected version 2")
    PartialState().distributed_type = DistributedType.MULTI_GPU
    if plugin.get("cpu_offload"):
        plugin["cpu_offload"] = CPUOffloadPolicy(pin_memory=False)  # there is no GPU to pin the memory for


def prepare_wrapping(settings: DeclaredSettings, trainer: Trainer) -> None:
    """What the Trainer has no argument for: DDP's options, and the first scale of fp16 under FSDP2."""
    start_scaler(trainer)
    options = read_json(Path(settings.config)) if settings.config else {}
    if options.pop("fsdp", True):
        return
    from accelerate.utils import DDPCommunicationHookType

    hook = DDPCommunicationHookType(options.pop("comm_hook", "no"))
    if hook is DDPCommunicationHookType.BF16 and trainer.args.device.type == "cpu":
        raise WorkshopError(f"{settings.config}: comm_hook bf16 needs a GPU, and there is none; expected fp16, or none")
    if "optimize_ddp" in options:
        from torch._dynamo import config as of_the_compiler  # seconds to import

        of_the_compiler.optimize_ddp = options.pop("optimize_ddp")
    for option, value in (options | {"comm_hook": hook}).items():
        setattr(trainer.accelerator.ddp_handler, option, value)


def start_scaler(trainer: Trainer) -> None:
    """With fp16, give the gradient scaler its scale before the first loss is scaled.

    A training that goes on from a checkpoint needs it so early: to load FSDP2's optimizer PyTorch first takes a step
    of it without gradients, and a scaler without a scale refuses (found on two H200).
    """
    import torch

    if trainer.is_fsdp_enabled and trainer.accelerator.scaler is not None:
        trainer.accelerator.scaler.scale(torch.zeros((), device=trainer.args.device))


def save_whole_model(trainer: Trainer) -> None:
    """Gathered, by one rank: with SHARDED_STATE_DICT the Trainer would save no final model."""
    if trainer.is_fsdp_enabled:
        trainer.accelerator.state.fsdp_plugin.set_state_dict_type("FULL_STATE_DICT")
    trainer.save_model()
