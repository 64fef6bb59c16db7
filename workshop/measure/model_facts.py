"""Facts of the run for run.json, known once the Trainer has the model and all ranks are connected."""

import math
import platform
from contextlib import suppress
from dataclasses import asdict, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader
from transformers import TrainerCallback

from workshop.data.load import Data
from workshop.record.printable import counted
from workshop.record.run_record import update_run_record
from workshop.settings.model_file import short_name
from workshop.settings.settings import Settings
from workshop.training.callbacks import gather_objects
from workshop.training.models import model_size, stored_numel


class RunRecorder(TrainerCallback):
    """Adds the facts to run.json when the training begins."""

    def __init__(self, settings: Settings, data: Data) -> None:
        self.settings, self.data = settings, data

    def on_train_begin(
        self, args: Any, state: Any, control: Any, model: torch.nn.Module, train_dataloader: DataLoader, **_: Any
    ) -> None:
        record_facts(self.settings, self.data, model, len(train_dataloader.dataset))


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
