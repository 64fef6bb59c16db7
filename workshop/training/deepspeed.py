"""DeepSpeed's configuration for the Trainer, and settings for which the Trainer has no argument."""

from pathlib import Path
from typing import Any

from workshop.record.checkpoints import UNIVERSAL
from workshop.settings.configuration import configuration_of
from workshop.settings.settings import Settings


def deepspeed_config(settings: Settings) -> dict[str, Any]:
    """Return the launcher's JSON for the Trainer, which loads a converted checkpoint as such.

    Raises InputError as `configuration_of` does.
    """
    config = configuration_of(settings).values
    if settings.resume_from and (Path(settings.resume_from) / UNIVERSAL).is_file():
        config = config | {"checkpoint": config.get("checkpoint", {}) | {"load_universal": True}}
    ask_cuda_for_free_memory()
    if config.get("compile", {}).get("deepcompile"):
        import torch
        from deepspeed.compile import init_z3

        # The compiled evaluation fails with cuDNN's attention, which has no second result without gradients.
        torch.backends.cuda.enable_cudnn_sdp(False)
        init_z3.WARMUP = 3  # instead of 5: it compiles again, with prefetching, in the steps that mean speeds leave out
    return config | {"wall_clock_breakdown": True} if settings.timers else config


def connect_without_gpu() -> None:
    """Let DeepSpeed use gloo where there is no GPU: the process group that Transformers has opened."""
    import deepspeed
    import torch

    if not torch.cuda.is_available():
        deepspeed.init_distributed(dist_backend="gloo")


def ask_cuda_for_free_memory() -> None:
    """Have ZeRO's stages 1 and 2 ask CUDA, not NVML, which fails if CUDA_VISIBLE_DEVICES names GPUs by UUID."""
    import torch
    from deepspeed.accelerator import get_accelerator

    if torch.cuda.is_available():
        get_accelerator().available_memory = lambda device_index=None: torch.cuda.mem_get_info(device_index)[0]
