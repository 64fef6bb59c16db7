"""What only a machine without a GPU needs, each in a call of its own; with a GPU all of these do nothing."""

import os

import torch
from transformers import TrainingArguments

from workshop.errors import WorkshopError
from workshop.settings import Settings


def find_gpu(settings: Settings) -> bool:
    """Whether there is a GPU; says what a run without one does differently."""
    gpu = torch.cuda.is_available()
    if settings.fp16 and not gpu and os.environ.get("RANK", "0") == "0":
        print("warning: FP16=true needs a GPU and there is none; training in fp32")
    return gpu


def join_gloo_ranks(arguments: TrainingArguments) -> None:
    """DeepSpeed: without a GPU transformers opens the gloo process group itself and DeepSpeed has to be told of it."""
    if torch.cuda.is_available() or not arguments.deepspeed:
        return
    if (arguments.deepspeed.get("zero_optimization", {}).get("offload_optimizer") or {}).get("super_offload"):
        raise WorkshopError(
            "zero_optimization.offload_optimizer.super_offload needs an NVIDIA GPU, and there is none; expected it "
            "left out"
        )
    import deepspeed

    deepspeed.init_distributed(dist_backend="gloo")


def shard_on_cpu(settings: Settings, arguments: TrainingArguments) -> None:
    """FSDP: let accelerate shard over gloo; it knows FSDP for accelerators only and would silently run DDP.

    Call it before the Trainer is made. Plain DDP needs none of it.
    """
    if torch.cuda.is_available() or not arguments.fsdp:
        return
    from accelerate import PartialState
    from accelerate.utils import DistributedType
    from torch.distributed.fsdp import CPUOffloadPolicy

    PartialState().distributed_type = DistributedType.MULTI_GPU
    PartialState().device = torch.device("cpu")  # FSDP1 takes "cpu" and "cpu:0" for two devices
    plugin = arguments.fsdp_plugin_args
    if plugin["fsdp_version"] == 1:
        if plugin.get("cpu_offload") or settings.save != "no":
            # It asks for a GPU to offload from, and its gathered state of a model in CPU memory crashes (torch 2.13).
            raise WorkshopError(
                f"{settings.config}: without a GPU FSDP1 can neither offload nor save; expected no cpu_offload and "
                "SAVE=no, or version 2"
            )
        plugin["sync_module_states"] = False  # FSDP1 broadcasts from GPU memory only; the seed makes ranks equal here
    elif plugin.get("cpu_offload"):
        plugin["cpu_offload"] = CPUOffloadPolicy(pin_memory=False)  # there is no GPU to pin the memory for
