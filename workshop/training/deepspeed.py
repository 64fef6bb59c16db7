"""DeepSpeed's configuration, read before anything is loaded: DeepSpeed would complain minutes later or not at all."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workshop.run_folder.configuration import Configuration, read_configuration
from workshop.run_folder.settings import DeclaredSettings
from workshop.training.shapes import model_file

if TYPE_CHECKING:  # torch with it; the launcher checks a file without
    from transformers import TrainingArguments


def world_size() -> int:
    """Training processes in all: as they are told, and before they start as the launcher has counted them."""
    nodes, per_node = (int(os.environ.get(name, "1")) for name in ("NNODES", "NPROC_PER_NODE"))
    return int(os.environ.get("WORLD_SIZE", nodes * per_node))


def has_gpu() -> bool:
    """Whether there is a driver of an NVIDIA GPU, which PyTorch's import would take seconds to say."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return os.environ.get("CUDA_VISIBLE_DEVICES") not in ("", "-1", "NoDevFiles")


def configuration(settings: DeclaredSettings, exercise: str = "", ranks: int = 0) -> Configuration:
    """The launcher's argument, DeepSpeed's or FSDP's. Raises InputError, without torch, naming the file and the key
    for what is not trained as it is written.
    """
    known, exercise = vars(settings), exercise or Path.cwd().name
    model = model_file(known.get("model_name", ""))
    return read_configuration(Path(settings.config), known, ranks or world_size(), exercise, model)


def deepspeed_config(settings: DeclaredSettings) -> dict[str, Any]:
    """The JSON the launcher was given, as the Trainer wants it. Raises InputError as `configuration` does."""
    config = configuration(settings).values
    ask_cuda_for_free_memory()
    return config | {"wall_clock_breakdown": True} if settings.timers else config


def ask_cuda_for_free_memory() -> None:
    """ZeRO's stages 1 and 2 would ask NVML, by the numbers in CUDA_VISIBLE_DEVICES: a UUID there ended the training."""
    import torch
    from deepspeed.accelerator import get_accelerator

    if torch.cuda.is_available():
        get_accelerator().available_memory = lambda device_index=None: torch.cuda.mem_get_info(device_index)[0]


def join_gloo_ranks(arguments: TrainingArguments) -> None:
    """Without a GPU transformers opens the gloo process group itself, and DeepSpeed has to be told of it."""
    import torch

    if torch.cuda.is_available() or not arguments.deepspeed:
        return
    import deepspeed

    deepspeed.init_distributed(dist_backend="gloo")
