"""Every private name of a library that the workshop touches, without workshop/simulate/.

Seen in Python 3.11 and 3.12, torch 2.11 and 2.13, Transformers 5.17 and 5.23, DeepSpeed 0.19.8, datasets 5.2.
"""

import atexit
import ctypes
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch.distributed import distributed_c10d
from torch.distributed.device_mesh import DeviceMesh
from torch.nn.parallel import DistributedDataParallel
from torch.utils._python_dispatch import TorchDispatchMode as TorchDispatchMode
from torch.utils._pytree import tree_leaves as tree_leaves
from torch.utils._pytree import tree_map as tree_map

# torch

# Attention that also gives, or takes, the log-sum-exp of the scores
_AT = torch.ops.aten
flash_attention = _AT._scaled_dot_product_flash_attention
flash_attention_backward = _AT._scaled_dot_product_flash_attention_backward
flash_attention_on_cpu = _AT._scaled_dot_product_flash_attention_for_cpu
flash_attention_on_cpu_backward = _AT._scaled_dot_product_flash_attention_for_cpu_backward


def flattened(mesh: DeviceMesh, name: str) -> DeviceMesh:
    """Return the mesh's ranks in one dimension of this name."""
    return mesh._flatten(name)


def call_before_forward(model: torch.nn.Module, look: Callable[[Any, tuple[Any, ...], dict[str, Any]], None]) -> None:
    """Call `look(model, inputs, named inputs)` before each forward pass, outside of a compiled model's graph."""
    if not (compiled := getattr(model, "_compiled_call_impl", None)):
        model.register_forward_pre_hook(look, with_kwargs=True)
        return

    def looked_at(*inputs: Any, **named: Any) -> Any:
        look(model, inputs, named)
        return compiled(*inputs, **named)

    model._compiled_call_impl = looked_at


def checkpointed(block: torch.nn.Module) -> torch.nn.Module:
    """Return what activation checkpointing was put around; without it the block itself."""
    return getattr(block, "_checkpoint_wrapped_module", block)


def is_called_by_ddp() -> bool:
    """Return whether this is called in DDP's forward pass."""
    return DistributedDataParallel._active_ddp_module is not None


def set_timeouts(seconds: float) -> None:
    """Set the time-out of all process groups: HYBRID_SHARD and DeepSpeed make more. torchtitan does it so, too."""
    for group in distributed_c10d._world.pg_map:
        distributed_c10d._set_pg_timeout(timedelta(seconds=seconds), group)


def process_group(name: str) -> torch.distributed.ProcessGroup:
    return distributed_c10d._resolve_process_group(name)


def call_of(operator: Any, given: tuple[Any, ...]) -> tuple[str, dict[str, Any]]:
    """Return an operator's name without its namespace, and these positional arguments by their names."""
    schema = operator._schema
    return schema.name.split("::")[1], dict(zip((item.name for item in schema.arguments), given, strict=False))


def changes_its_input(operator: Any) -> bool:
    return operator._schema.is_mutable


def set_optimize_ddp(value: Any) -> None:
    from torch._dynamo import config  # seconds to import

    config.optimize_ddp = value


def allow_any_length(tensor: torch.Tensor) -> None:
    """Have torch.compile compile once for all sizes of the first dimension."""
    torch._dynamo.maybe_mark_dynamic(tensor, 0)


def own_parameter(module: torch.nn.Module, name: str) -> torch.nn.Parameter:
    """Return a parameter that a property of the module's class hides."""
    return module._parameters[name]


def save_as_plain_linear(layer: torch.nn.Linear, *state: Any) -> None:
    torch.nn.Linear._save_to_state_dict(layer, *state)


# Transformers and datasets, whose import takes a launcher that compiles operators seconds


def save_in(trainer: Any, folder: Path) -> None:
    """Let the Trainer save its checkpoints in this folder; its own is as before after each, also after an error."""
    save = trainer._save_checkpoint

    def save_there(*given: Any) -> None:
        before = trainer.args.output_dir
        trainer.args.output_dir = str(folder)
        try:
            save(*given)
        finally:
            trainer.args.output_dir = before

    trainer._save_checkpoint = save_there


def fingerprint(rows: Any) -> str:
    return rows._fingerprint


# DeepSpeed


def loaded_operators() -> dict[str, Any]:
    """Return the modules of the operators that DeepSpeed has loaded, by their names; it takes those that are added."""
    from deepspeed.ops.op_builder.builder import OpBuilder

    return OpBuilder._loaded_ops


def use_gloo_between_ranks() -> None:
    """Without a GPU DeepSpeed would compile collectives to connect the ranks of a node, which gloo connects as well."""
    import deepspeed

    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False


# Python


def end_process() -> NoReturn:
    """End this process with exit code 0, after what `atexit` has registered. Call it last: no `finally` runs after it.

    gloo's worker threads need the interpreter's lock to let go of a collective's tensors. They can outlive
    `destroy_process_group`, because other objects hold on to the group, DTensor's caches for example. Before version
    3.14, Python ends a thread that still waits for the lock when it finalizes. In a C++ destructor that aborts the
    process: "terminate called without an active exception", exit code -6, and a run with all its results has failed.
    """
    # DataLoader's workers: at exit each would be waited for, 5 s. Its handler takes their end for a fault.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for worker in multiprocessing.active_children():
        worker.terminate()
        worker.join()
    atexit._run_exitfuncs()  # temporary folders, the compiler's processes
    sys.stdout.flush()
    sys.stderr.flush()
    ctypes.CDLL(None).fflush(None)  # what C libraries have printed: NCCL_DEBUG's lines
    os._exit(0)
