"""Code that the scripts share beside the lesson: the model by name, its device, its configuration, a rank's end."""

import os
from pathlib import Path
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from by_hand_settings import ByHandSettings
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from custom_model.model import build_model as build_gpt
from custom_model.settings import MODEL_NAME
from workshop.private_names import end_process
from workshop.record.control import Control
from workshop.settings.configuration import configuration_of
from workshop.training.deepspeed import ask_cuda_for_free_memory
from workshop.training.models import load_model


def build_model(settings: ByHandSettings, tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
    """Return a model in fp32 with equal weights on every rank (random ones: one seed), in CPU memory."""
    build = build_gpt if settings.model_name == MODEL_NAME else load_model
    model = build(settings, tokenizer, sharded=True)  # the whole model may not fit on a GPU
    model.config.use_cache = False  # keys and values of earlier tokens: for generation
    return model.train()


def own_device() -> torch.device:
    """Make this rank's GPU the current one and return it; without a GPU return the CPU."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    return torch.device("cuda", torch.cuda.current_device())


def fsdp_config(settings: ByHandSettings) -> dict[str, Any]:
    """Return a file of fsdp_configs/ with its defaults."""
    values = configuration_of(settings).values
    return {"replicas": 1, "cpu_offload": False} | values


def zero_config(settings: ByHandSettings) -> dict[str, Any]:
    """Return a file of ds_configs/ with its "auto" values filled in; the script has the optimizer."""
    config = configuration_of(settings).values
    ask_cuda_for_free_memory()
    for name in ("train_batch_size", "optimizer"):
        config.pop(name, None)
    if settings.optimizer == "muon":
        params = {"lr": settings.learning_rate, "weight_decay": settings.weight_decay, "torch_adam": True}
        config["optimizer"] = {"type": "Muon", "params": params}
    return config | {
        "train_micro_batch_size_per_gpu": settings.batch_size,
        "gradient_accumulation_steps": settings.grad_acc,
        "gradient_clipping": 1.0,
        "fp16": {"enabled": False},
        "bf16": {"enabled": settings.bf16},
        "zero_force_ds_cpu_optimizer": False,  # PyTorch's AdamW runs on the CPU too, without a compiler
    }


def end_rank() -> NoReturn:
    """When all ranks are here, rank 0 writes the run's end mark; then this process ends, with exit code 0."""
    dist.barrier()
    if dist.get_rank() == 0:
        Control(Path(os.environ["RUN_DIR"])).say("finished")
    dist.destroy_process_group()
    end_process()
