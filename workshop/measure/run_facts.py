"""Facts of the run for run.json, once the Trainer has the model and all ranks are connected.

What is sharded, where it is kept, and in which precision and classes it computes is read from the running model: a
configuration only says what was asked for. Older material asked for FSDP and got one shard unit (erratum K2), or fp32
(erratum K3), and nobody noticed.
"""

import math
import platform
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel
from torch.distributed.tensor import DTensor
from torch.utils.data import DataLoader
from transformers import TrainerCallback
from transformers.pytorch_utils import Conv1D

from workshop.data.load import Data
from workshop.private_names import checkpointed, is_called_by_ddp
from workshop.record.errors import InputError
from workshop.record.printable import counted
from workshop.record.run_record import update_run_record
from workshop.settings.model_file import short_name
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


def gradients_of(model: torch.nn.Module, optimizer: Any) -> list[torch.Tensor]:
    """Return the gradients that this rank keeps: the parameters' own, and those of DeepSpeed's ZeRO as `optimizer`.

    Between two micro-batches stage 3 keeps its part in one buffer. Stage 2 keeps lists per group, or tensors in CPU
    memory, each as large as its parameter. bf16 without a stage has fp32 buffers.
    """
    buffer = getattr(optimizer, "grad_partitions_flat_buffer", None)
    return [
        *(parameter.grad for parameter in model.parameters() if parameter.grad is not None),
        *([] if buffer is None else [buffer]),
        *(part for group in getattr(optimizer, "all_grad_tensors", {}).values() for part in group or ()),
        *getattr(optimizer, "accumulated_grads_in_cpu", {}).values(),
        *getattr(optimizer, "fp32_groups_gradients_flat", ()),
    ]


def optimizer_states(model: torch.nn.Module, optimizer: Any) -> list[torch.Tensor]:
    """Return the innermost optimizer's tensors: Adam's moments, and master weights beside the model's."""
    weights = set(map(id, model.parameters()))
    copies = [parameter for parameter in optimizer.state if id(parameter) not in weights]
    values = [value for states in optimizer.state.values() for value in states.values()]
    return copies + [value for value in values if isinstance(value, torch.Tensor)]


class RunRecorder(TrainerCallback):
    """Adds to run.json the facts of `record_facts`, and `sharding` and `precision` after the first step, from what all
    ranks hold. Give it the model before the Trainer wraps it.
    """

    def __init__(self, settings: Settings, data: Data, model: torch.nn.Module) -> None:
        self.settings, self.data = settings, data
        self.classes = {"model_class": class_name(type(model)), "own_modules": own_modules(model)}
        self.blocks = blocks_of(model)
        self.held: dict[str, int] = {}  # elements on this rank: the blocks' parameters, gradients, Adam's moments
        self.held_mib: dict[str, float] = {}  # of the whole model, and all that the optimizer keeps
        self.method = "none"
        self._hooks: list[Any] = []  # until all is known

    def on_train_begin(
        self, args: Any, state: Any, control: Any, model: torch.nn.Module, train_dataloader: DataLoader, **_: Any
    ) -> None:
        self.full = dict.fromkeys(("gradients", "optimizer"), model_size(model).trained_parameters)
        self.full["parameters"] = sum(map(stored_numel, self.blocks.parameters()))
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
        self.probe = PrecisionProbe(self.blocks)
        self._hooks = [model.register_forward_hook(self._after_forward), self.probe.hook]
        if args.deepspeed and args.torch_compile:  # it compiles hooks; ZeRO's weights have the type it computes in
            for hook in self._hooks:
                hook.remove()
            self.probe.precision = PRECISIONS[next(self.blocks.parameters()).dtype]
        record_facts(self.settings, self.data, model, len(train_dataloader.dataset))

    def _after_forward(self, model: torch.nn.Module, *_: Any) -> None:
        # Here, not after the step: SHARD_GRAD_OP keeps the gathered parameters from the forward to the backward pass.
        if model.training:
            self.held.setdefault("parameters", local_numel(self.blocks.parameters()))
            self.held_mib.setdefault("weights", held_mib(model.parameters()))
        if is_called_by_ddp():
            self.method = "ddp"

    def on_substep_end(self, args: Any, state: Any, control: Any, model: Any, optimizer: Any, **_: Any) -> None:
        if args.deepspeed:  # whose last backward pass of a step includes the optimizer step
            self._see_gradients(model, optimizer)

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, model: Any, optimizer: Any, **_: Any) -> None:
        if not args.deepspeed:
            self._see_gradients(model, optimizer)

    def _see_gradients(self, model: torch.nn.Module, optimizer: Any) -> None:
        if self._hooks:
            gradients = gradients_of(model, optimizer.optimizer)
            self.held["gradients"], self.held_mib["gradients"] = local_numel(gradients), held_mib(gradients)

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
            offloads = bool(args.fsdp and args.fsdp_plugin_args.get("cpu_offload"))
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


def record_facts(settings: Settings, data: Data, model: torch.nn.Module, rows: int, dp_size: int | None = None) -> None:
    """Write the facts into run.json and print them, on rank 0. Collective: call it on every rank.

    Args: rows: of an epoch, packed or not; dp_size: groups of ranks with their own rows; None: every rank has its own.
    """
    gpu = torch.cuda.is_available()
    gpu_names = gather_objects(torch.cuda.get_device_name() if gpu else None)
    # An id of the running kernel: nodes of an emulated cluster have different hostnames but share it.
    hosts = set(gather_objects(Path("/proc/sys/kernel/random/boot_id").read_text()))
    if torch.distributed.is_initialized() and torch.distributed.get_rank():
        return
    world_size = len(gpu_names)
    dp_size = dp_size or world_size
    attention_size, key_value_size = attention_sizes(model.config)
    size = replace(
        model_size(model),
        name=short_name(settings.model_name),
        layers=getattr(model.config, "num_hidden_layers", None),
        hidden_size=getattr(model.config, "hidden_size", None),
        attention_size=attention_size,  # may differ from hidden_size
        key_value_size=key_value_size,
        idle_parameters=idle_parameters(model),
        # the custom model's
        flops_per_token=model.flops_per_token(settings.max_length) if hasattr(model, "flops_per_token") else None,
    )
    facts = {
        "world_size": world_size,
        "dp_size": dp_size,
        "model": asdict(size),
        "device": "cuda" if gpu else "cpu",
        "gpu_names": [name for name in gpu_names if name],
        "cpu_threads": torch.get_num_threads(),
        "emulated_nodes": len(hosts) < settings.start.nodes,
        "train_examples": len(data.train),  # packed, they are fewer rows
        "eval_examples": len(data.evaluation),
        "steps_per_epoch": math.ceil(rows / (settings.batch_size * dp_size * settings.grad_acc)),
        "versions": versions(),
    }
    if size.flops_per_token:
        tokens = settings.batch_size * settings.grad_acc * settings.max_length * dp_size // world_size
        facts["flops_per_gpu_per_step"] = size.flops_per_token * tokens
    update_run_record(settings.run_dir, **facts)
    asked_for = "fp16" if settings.fp16 and gpu else "bf16" if settings.bf16 else "fp32"
    trained = size.trained_parameters / size.parameters
    frozen = f", {trained:.2%} trained" if trained < 1 else ""
    print(
        f"{size.name}: {size.parameters / 1e6:,.1f} M parameters, "
        f"{size.block_parameters / size.parameters:.0%} of them in the blocks{frozen}; {asked_for} asked for, on "
        f"{world_size} x {(facts['gpu_names'] or ['CPU'])[0]}; "
        f"batch {settings.batch_size} x {settings.grad_acc} x {dp_size}, "
        f"{counted(facts['steps_per_epoch'], 'step')} per epoch"
    )
    if size.flops_per_token:
        print(
            f"{size.flops_per_token / 1e9:.3f} GFLOP per token, "
            f"{facts['flops_per_gpu_per_step'] / 1e12:.4g} TFLOP per GPU and step"
        )


def attention_sizes(config: Any) -> tuple[int | None, int | None]:
    """Return the sizes of a position's queries and of its keys, which are smaller where query heads share a key."""
    heads, hidden_size = (getattr(config, name, None) for name in ("num_attention_heads", "hidden_size"))
    if not (heads and hidden_size):
        return hidden_size, None
    head_size = getattr(config, "head_dim", None) or hidden_size // heads
    return heads * head_size, getattr(config, "num_key_value_heads", heads) * head_size


def idle_parameters(model: torch.nn.Module) -> int:
    """Return the parameters of experts that a token does not use; 0 in a model without experts."""
    experts = getattr(model.config, "num_experts", None) or getattr(model.config, "num_local_experts", None)
    if not experts:
        return 0
    stored = sum(stored_numel(weight) for name, weight in model.named_parameters() if ".experts." in name)
    return stored * (experts - getattr(model.config, "num_experts_per_tok", experts)) // experts


def versions() -> dict[str, str | None]:
    """Return the versions that decide speed and results; None for a package that is not installed."""
    packages: dict[str, str | None] = dict.fromkeys(("torch", "transformers", "accelerate", "deepspeed"))
    for package in packages:
        with suppress(PackageNotFoundError):
            packages[package] = version(package)
    return {"python": platform.python_version(), **packages, "cuda": torch.version.cuda}
