"""A DeepSpeed configuration, checked before anything is loaded: DeepSpeed would complain minutes later or not at all.

Values that env_vars.sh also sets must be "auto" in the JSON: the Trainer then copies its own arguments into them.
"auto" does not search for the largest batch that fits (erratum K7): the global batch is micro-batch x accumulation
x GPUs, nothing else.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from run_folder.settings import DeclaredSettings
from workshop.errors import WorkshopError

if TYPE_CHECKING:  # torch with it; the launcher checks a file without
    from transformers import TrainingArguments

# The top-level sections DeepSpeed reads. It ignores any other name silently.
# Source: https://www.deepspeed.ai/docs/config-json/
SECTIONS = {
    *("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "gradient_clipping"),
    *("optimizer", "scheduler", "fp16", "bf16", "torch_autocast", "data_types", "communication_data_type"),
    *("zero_optimization", "zero_allow_untested_optimizer", "zero_force_ds_cpu_optimizer", "prescale_gradients"),
    *("gradient_predivide_factor", "activation_checkpointing", "aio", "steps_per_print", "wall_clock_breakdown"),
    *("dump_state", "flops_profiler", "comms_logger", "tensorboard", "wandb", "csv_monitor", "checkpoint", "compile"),
}


def world_size() -> int:
    """Training processes in all: as they are told, and before they start as the launcher has counted them."""
    nodes, per_node = (int(os.environ.get(name, "1")) for name in ("NNODES", "NPROC_PER_NODE"))
    return int(os.environ.get("WORLD_SIZE", nodes * per_node))


def deepspeed_config(settings: DeclaredSettings) -> dict[str, Any]:
    """The JSON the launcher was given, as the Trainer wants it.

    Raises WorkshopError as `checked_json` does, and for what DeepSpeed itself refuses: a stage that does not exist.
    """
    path, config = Path(settings.config), checked_json(settings)
    check_zero(path, config.get("zero_optimization", {}))
    ask_cuda_for_free_memory()
    if settings.timers:
        config["wall_clock_breakdown"] = True
    return config


def ask_cuda_for_free_memory() -> None:
    """ZeRO's stages 1 and 2 would ask NVML, by the numbers in CUDA_VISIBLE_DEVICES: a UUID there ended the training."""
    import torch
    from deepspeed.accelerator import get_accelerator

    if torch.cuda.is_available():
        get_accelerator().available_memory = lambda device_index=None: torch.cuda.mem_get_info(device_index)[0]


def checked_json(settings: DeclaredSettings) -> dict[str, Any]:
    """The file as it is. Raises WorkshopError, without torch, naming the file and the place for text that is not JSON,
    a key that nothing reads, or a value that contradicts env_vars.sh.
    """
    path = Path(settings.config)
    config = read_json(path)
    check_keys(path, config, settings)
    if settings.optimizer != "adamw_torch_fused" and "optimizer" in config:
        raise WorkshopError(
            f"OPTIMIZER={settings.optimizer}: {path} has an optimizer of its own, which wins; expected it left out"
        )
    return config


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file. Raises WorkshopError with line and column."""
    try:
        config = json.loads(path.read_text())
    except OSError as error:
        raise WorkshopError(f"{path}: {error.strerror}; expected a file such as ds_configs/zero2.json") from None
    except json.JSONDecodeError as error:
        raise WorkshopError(f"{path}:{error.lineno}:{error.colno}: not JSON ({error.msg})") from None
    if not isinstance(config, dict):
        raise WorkshopError(f"{path}: found {type(config).__name__}, expected a JSON object {{…}}")
    return config


def check_zero(path: Path, zero: dict[str, Any]) -> None:
    """Let DeepSpeed's own schema judge the ZeRO section, without the values that are still "auto"."""
    from deepspeed.runtime.zero.config import DeepSpeedZeroConfig
    from pydantic import ValidationError

    try:
        DeepSpeedZeroConfig(**{key: value for key, value in zero.items() if value != "auto"})
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(["zero_optimization", *map(str, first["loc"])])
        raise WorkshopError(f"{path}: {key} is {first['input']!r}: {first['msg']}") from None


def check_keys(path: Path, config: dict[str, Any], settings: DeclaredSettings) -> None:
    """Raises WorkshopError for a section that nothing reads, or a value that contradicts the settings.

    They have one place: a JSON with micro-batch 4 beside a loader with 32 trains on neither (erratum B5).
    """
    if unknown := sorted(set(config) - SECTIONS):
        raise WorkshopError(f"{path}: nothing reads '{unknown[0]}'; expected keys out of {', '.join(sorted(SECTIONS))}")
    expected = {
        "train_micro_batch_size_per_gpu": ("BATCH_SIZE", settings.batch_size),
        "gradient_accumulation_steps": ("GRAD_ACC", settings.grad_acc),
        "train_batch_size": ("BATCH_SIZE x GRAD_ACC x GPUs", settings.batch_size * settings.grad_acc * world_size()),
        "gradient_clipping": ("the workshop's gradient clipping", 1.0),
        "optimizer.params.lr": ("LEARNING_RATE", settings.learning_rate),
        "optimizer.params.weight_decay": ("WEIGHT_DECAY", settings.weight_decay),
        "fp16.enabled": ("FP16", settings.fp16),
        "bf16.enabled": ("BF16", settings.bf16),
    }
    for key, (name, value) in expected.items():
        found: Any = config
        for part in key.split("."):
            found = found.get(part, "auto") if isinstance(found, dict) else "auto"
        if found not in ("auto", value):
            raise WorkshopError(f'{path}: {key} is {found!r}, but {name} is {value!r}; expected "auto" in the JSON')


def join_gloo_ranks(arguments: TrainingArguments) -> None:
    """Without a GPU transformers opens the gloo process group itself, and DeepSpeed has to be told of it."""
    import torch

    if torch.cuda.is_available() or not arguments.deepspeed:
        return
    if (arguments.deepspeed.get("zero_optimization", {}).get("offload_optimizer") or {}).get("super_offload"):
        raise WorkshopError(
            "zero_optimization.offload_optimizer.super_offload needs an NVIDIA GPU, and there is none; expected it "
            "left out"
        )
    import deepspeed

    deepspeed.init_distributed(dist_backend="gloo")
