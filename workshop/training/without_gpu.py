"""FSDP and DeepSpeed on a machine without a GPU, over gloo."""

import torch
from accelerate import PartialState
from accelerate.utils import DistributedType
from torch.distributed.fsdp import CPUOffloadPolicy
from transformers import TrainingArguments


def shard_over_gloo(arguments: TrainingArguments) -> None:
    """Let FSDP and DeepSpeed shard without a GPU; call it before the Trainer is made. With one it does nothing."""
    if torch.cuda.is_available():
        return
    if arguments.deepspeed:
        import deepspeed

        deepspeed.init_distributed(dist_backend="gloo")  # the process group that Transformers has opened
    if arguments.fsdp:  # which accelerate supports on accelerators only: it would silently run DDP
        PartialState().distributed_type = DistributedType.MULTI_GPU
        plugin = arguments.fsdp_plugin_args
        if plugin.get("cpu_offload"):
            plugin["cpu_offload"] = CPUOffloadPolicy(pin_memory=False)  # there is no GPU to pin the memory for
