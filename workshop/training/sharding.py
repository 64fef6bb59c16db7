"""Read from the running model what is sharded, where it is kept, and in which precision and classes it computes.

A configuration only says what was asked for. Older material asked for FSDP and got one shard unit (erratum K2), or fp32
(erratum K3), and nobody noticed.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel
from torch.distributed.tensor import DTensor
from transformers import TrainerCallback
from transformers.pytorch_utils import Conv1D

from workshop.private_names import checkpointed, is_called_by_ddp, unit_offloads
from workshop.record.errors import InputError
from workshop.record.run_record import update_run_record
from workshop.settings.settings import Settings
from workshop.training.callbacks import gather_objects
from workshop.training.models import blocks_of, model_size, stored_numel

PRECISIONS = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}
LINEAR = (torch.nn.Linear, Conv1D)  # GPT-2's layers are Conv1D


def class_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def own_modules(model: torch.nn.Module) -> list[str]:
    """Return the modules' classes beside PyTorch's and Transformers'; [] if only the libraries' code ran."""
    kinds = {type(module) for module in model.modules()}
    return sorted(class_name(kind) for kind in kinds if kind.__module__.split(".")[0] not in ("torch", "transformers"))


def local(tensor: torch.Tensor) -> torch.Tensor:
    """Return this rank's part of a tensor. ZeRO-3 keeps it as `ds_tensor`, and all of a small parameter."""
    if isinstance(tensor, DTensor):
        return tensor.to_local()
    return max(tensor, getattr(tensor, "ds_tensor", tensor), key=torch.Tensor.numel)


def local_numel(tensors: Iterable[torch.Tensor]) -> int:
    """Return the elements that this rank holds of the given tensors."""
    return sum(local(tensor).numel() for tensor in tensors)


def held_mib(tensors: Iterable[torch.Tensor]) -> float:
    """Return the memory of this rank's part of the given tensors."""
    return sum(local(tensor).nbytes for tensor in tensors) / 2**20


def shard_units(blocks: Iterable[torch.nn.Module]) -> int:
    """Return how many blocks are FSDP units, with or without activation checkpointing around."""
    layers = ((block, checkpointed(block)) for block in blocks)
    return sum(any(isinstance(layer, FSDPModule | FullyShardedDataParallel) for layer in pair) for pair in layers)


class PrecisionProbe:
    """Sees the type in which the first linear layer of the blocks computes; remove `hook` when it is known."""

    def __init__(self, blocks: torch.nn.Module) -> None:
        self.precision: str | None = None
        linear = next(module for module in blocks.modules() if isinstance(module, LINEAR))
        self.hook = linear.register_forward_hook(self._see)

    def _see(self, linear: torch.nn.Module, inputs: Any, output: torch.Tensor) -> None:
        self.precision = PRECISIONS[output.dtype]


def zero_gradients(model: torch.nn.Module, zero: Any) -> list[torch.Tensor]:
    """Return the gradients that this rank keeps between two micro-batches under DeepSpeed, whose optimizer is `zero`.

    Stage 3 keeps its part in one buffer. Stage 2 keeps lists per group, or tensors in CPU memory, each as large as its
    parameter. bf16 without a stage has fp32 buffers. Otherwise the parameters have them.
    """
    buffer = getattr(zero, "grad_partitions_flat_buffer", None)
    return [
        *(parameter.grad for parameter in model.parameters() if parameter.grad is not None),
        *([] if buffer is None else [buffer]),
        *(part for group in getattr(zero, "all_grad_tensors", {}).values() for part in group or ()),
        *getattr(zero, "accumulated_grads_in_cpu", {}).values(),
        *getattr(zero, "fp32_groups_gradients_flat", ()),
    ]


def optimizer_states(model: torch.nn.Module, optimizer: Any) -> list[torch.Tensor]:
    """Return the innermost optimizer's tensors: Adam's moments, and master weights beside the model's."""
    own = set(map(id, model.parameters()))
    copies = [parameter for parameter in optimizer.state if id(parameter) not in own]
    values = [value for states in optimizer.state.values() for value in states.values()]
    return copies + [value for value in values if isinstance(value, torch.Tensor)]


class ShardingRecorder(TrainerCallback):
    """Adds `sharding` and `precision` to run.json after the first step, from what all ranks hold.

    Give it the model before the Trainer wraps it.
    """

    def __init__(self, settings: Settings, model: torch.nn.Module) -> None:
        self.settings = settings
        self.classes = {"model_class": class_name(type(model)), "own_modules": own_modules(model)}
        self.blocks = blocks_of(model)
        # Elements on this rank: the blocks' parameters and gradients (DeepSpeed: all gradients), Adam's moments.
        self.held: dict[str, int] = {}
        self.held_mib: dict[str, float] = {}  # of the whole model, and all that the optimizer keeps
        self.method = "none"
        self._hooks: list[Any] = []  # until all is known

    def on_train_begin(self, args: Any, state: Any, control: Any, model: torch.nn.Module, **_: Any) -> None:
        parameters = list(self.blocks.parameters())
        self.full = {
            "parameters": sum(map(stored_numel, parameters)),
            "gradients": sum(stored_numel(parameter) for parameter in parameters if parameter.requires_grad),
            "optimizer": model_size(model).trained_parameters,
        }
        if args.fsdp:
            self.method = "fsdp2" if isinstance(model, FSDPModule) else "fsdp1"
            units, blocks = shard_units(self.blocks), len(self.blocks)
            if units < blocks:
                raise InputError(
                    f"{self.settings.config}: {units} of the model's {blocks} blocks ({type(self.blocks[0]).__name__}) "
                    "are shard units; expected all, or whole groups of blocks are gathered at once (auto_wrap_policy, "
                    "transformer_layer_cls_to_wrap)"
                )
        if args.deepspeed:
            self.method = f"zero{args.hf_deepspeed_config.config.get('zero_optimization', {}).get('stage', 0)}"
            self.full["gradients"] = self.full["optimizer"]
        self.probe = PrecisionProbe(self.blocks)
        self._hooks = [model.register_forward_hook(self._after_forward), self.probe.hook]
        if args.deepspeed and args.torch_compile:  # it compiles hooks; ZeRO's weights have the type it computes in
            for hook in self._hooks:
                hook.remove()
            self.probe.precision = PRECISIONS[next(self.blocks.parameters()).dtype]

    def _after_forward(self, model: torch.nn.Module, *_: Any) -> None:
        # Here, not after the step: SHARD_GRAD_OP keeps the gathered parameters from the forward to the backward pass.
        if model.training:
            self.held.setdefault("parameters", local_numel(self.blocks.parameters()))
            self.held_mib.setdefault("weights", held_mib(model.parameters()))
        if is_called_by_ddp():
            self.method = "ddp"

    def on_substep_end(self, args: Any, state: Any, control: Any, model: Any, optimizer: Any, **_: Any) -> None:
        # The only place to see DeepSpeed's gradients: its last backward pass of a step includes the optimizer step.
        if self._hooks and args.deepspeed:
            gradients = zero_gradients(model, optimizer.optimizer)
            self.held["gradients"], self.held_mib["gradients"] = local_numel(gradients), held_mib(gradients)

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, model: Any, **_: Any) -> None:
        if self._hooks and not args.deepspeed:
            self.held["gradients"] = local_numel(p.grad for p in self.blocks.parameters() if p.grad is not None)
            self.held_mib["gradients"] = held_mib(p.grad for p in model.parameters() if p.grad is not None)

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any, optimizer: Any, **_: Any) -> None:
        if not self._hooks:
            return
        self._after_forward(model)  # if no hook has called it
        if state.is_world_process_zero:
            update_run_record(self.settings.run_dir, precision=self.probe.precision)
        if args.deepspeed:  # accelerate wraps ZeRO's optimizer, which wraps the one that computes
            zero = optimizer.optimizer
            optimizer = getattr(zero, "optimizer", zero)
            offloads = bool(getattr(zero, "cpu_offload", False) or getattr(zero, "offload_optimizer", False))
        else:
            offloads = any(map(unit_offloads, self.blocks.modules()))
        moments = [values["exp_avg"] for values in optimizer.state.values() if "exp_avg" in values]
        if not moments:  # fp16 skips its first steps: no moments yet
            return
        if args.device.type != "cpu":  # on the CPU only the configured objects tell
            offloads = all(tensor.device.type == "cpu" for tensor in moments)
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        self.held["optimizer"] = local_numel(moments)
        most = {key: max(ranks[key] for ranks in gather_objects(self.held)) for key in self.held}
        self.held_mib["optimizer_states"] = held_mib(optimizer_states(model, optimizer))
        mib = max(gather_objects(self.held_mib), key=lambda parts: sum(parts.values()))  # of the fullest rank
        if state.is_world_process_zero:
            sharded = {key: held < self.full[key] for key, held in most.items()}
            sizes = {f"{part}_mib": size for part, size in mib.items()}
            if "gradients" in mib:
                sizes["states_mib"] = sum(mib.values())
            sharding = {"method": self.method, **sharded, "cpu_offload": offloads, **sizes, **self.classes}
            update_run_record(self.settings.run_dir, sharding=sharding)
            parts = ", ".join(f"{held / self.full[key]:.0%} of the {key}" for key, held in most.items())
            offload = ", offloaded to the CPU" if offloads else ""
            print(
                f"strategy: {self.method}, computing in {self.probe.precision}; a rank holds at most {parts}{offload}"
            )
            held = ", ".join(f"{size:,.2f} MiB of {part.replace('_', ' ')}" for part, size in mib.items())
            print(f"states: the fullest rank holds {held}; together {sum(mib.values()):,.2f} MiB")
