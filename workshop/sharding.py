"""What a run really sharded, where it kept it and in which precision it computed: looked at during the first step.

A configuration only says what was asked for. Older material asked for FSDP and got one shard unit (erratum K2), or fp32
(erratum K3), and nobody noticed.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel
from torch.distributed.tensor import DTensor
from transformers import TrainerCallback

from workshop.callbacks import gather_objects
from workshop.errors import WorkshopError
from workshop.models import model_size
from workshop.run_record import update_run_record
from workshop.settings import Settings

PRECISIONS = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}


def local_numel(tensors: Iterable[torch.Tensor]) -> int:
    """Elements that this rank holds of the given tensors."""
    return sum(tensor.to_local().numel() if isinstance(tensor, DTensor) else tensor.numel() for tensor in tensors)


def shard_units(blocks: Iterable[torch.nn.Module]) -> int:
    """How many of the blocks are an FSDP unit of their own, with or without activation checkpointing around."""
    layers = ((block, getattr(block, "_checkpoint_wrapped_module", block)) for block in blocks)
    return sum(any(isinstance(layer, FSDPModule | FullyShardedDataParallel) for layer in pair) for pair in layers)


class ShardingRecorder(TrainerCallback):
    """Adds `sharding` and the precision that ran to run.json after the first step, from what all ranks hold.

    Give it the model before the Trainer wraps it.
    """

    def __init__(self, settings: Settings, model: torch.nn.Module) -> None:
        self.settings = settings
        self.size = model_size(model)
        self.blocks = next(module for module in model.modules() if isinstance(module, torch.nn.ModuleList))
        self.held: dict[str, int] = {}  # elements on this rank: blocks' parameters and gradients, optimizer's moments
        self.precision: str | None = None
        self.method = "ddp"
        self._hooks: list[Any] = []

    def on_train_begin(self, args: Any, state: Any, control: Any, model: torch.nn.Module, **_: Any) -> None:
        if args.fsdp:
            self._check_units(model)
        linear = next((module for module in self.blocks.modules() if isinstance(module, torch.nn.Linear)), None)
        self._hooks = [model.register_forward_hook(self._after_forward)]
        if linear is not None:
            self._hooks.append(linear.register_forward_hook(self._see_precision))

    def _check_units(self, model: torch.nn.Module) -> None:
        self.method = "fsdp2" if isinstance(model, FSDPModule) else "fsdp1"
        units, blocks = shard_units(self.blocks), len(self.blocks)
        if units < blocks:
            raise WorkshopError(
                f"{self.settings.config}: {units} of the model's {blocks} blocks ({type(self.blocks[0]).__name__}) are "
                "shard units; expected all, or whole groups of blocks are gathered at once (auto_wrap_policy, "
                "transformer_layer_cls_to_wrap)"
            )

    def _after_forward(self, model: torch.nn.Module, *_: Any) -> None:
        # Here, not after the step: SHARD_GRAD_OP keeps the gathered parameters from the forward to the backward pass.
        if model.training:
            self.held.setdefault("parameters", local_numel(self.blocks.parameters()))

    def _see_precision(self, linear: torch.nn.Module, inputs: Any, output: torch.Tensor) -> None:
        self.precision = PRECISIONS.get(output.dtype, str(output.dtype))

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self._hooks:
            gradients = (parameter.grad for parameter in self.blocks.parameters())
            self.held["gradients"] = local_numel(gradient for gradient in gradients if gradient is not None)

    def on_step_end(self, args: Any, state: Any, control: Any, optimizer: Any, **_: Any) -> None:
        if not self._hooks or not (args.deepspeed or optimizer.state):  # fp16 skips its first steps: no moments yet
            return
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        if args.deepspeed:  # keeps parameters, gradients and optimizer in buffers of its own
            return
        moments = (values["exp_avg"] for values in optimizer.state.values() if "exp_avg" in values)
        self.held["optimizer"] = local_numel(moments)
        full = {"parameters": self.size.blocks, "gradients": self.size.blocks, "optimizer": self.size.parameters}
        most = {key: max(ranks[key] for ranks in gather_objects(self.held)) for key in full}
        if not state.is_world_process_zero:
            return
        sharding = {
            "method": self.method,
            **{key: most[key] < full[key] for key in full},
            "cpu_offload": self._offloaded(args),
            "unchanged_model": True,
            "hf_trainer": True,
        }
        update_run_record(
            self.settings.run_dir, sharding=sharding, **({"precision": self.precision} if self.precision else {})
        )
        parts = [f"{key} {most[key] / full[key]:.0%}" for key in full]
        offload = ", offloaded to the CPU" if sharding["cpu_offload"] else ""
        print(f"{self.method}, computing in {self.precision}; the fullest rank holds of {', of '.join(parts)}{offload}")

    def _offloaded(self, args: Any) -> bool:
        if args.device.type == "cpu":  # all memory is the CPU's: what FSDP was told has to do
            return bool(args.fsdp and args.fsdp_config.get("cpu_offload"))
        return all(parameter.device.type == "cpu" for parameter in self.blocks.parameters())
