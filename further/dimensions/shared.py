"""Code that tp.py, cp.py and pp.py share beside the lesson; more is in by-hand's common.py and ddp.py."""

from functools import partial
from math import prod

import torch
import torch.distributed as dist
from common import own_device
from ddp import share_of_learning_rate
from dimension_settings import DimensionSettings
from torch.distributed.checkpoint import save
from torch.distributed.tensor import DTensor
from torch.nn.functional import pad
from torch.optim import AdamW
from torch.optim.lr_scheduler import LambdaLR
from transformers import PreTrainedConfig, PreTrainedModel

from custom_model.settings import MODEL_NAME
from workshop.data.encoding import IGNORE
from workshop.kernels.fast_models.loss import LossHead
from workshop.run_folder.errors import InputError
from workshop.run_folder.plural import counted


def use_loss_head(model: PreTrainedModel, settings: DimensionSettings) -> LossHead:
    """Make the model's `logits` the loss over the head's `targets`; its weights and their names stay.

    With GRADIENT_CHECKPOINTING its blocks also keep their inputs only.
    """
    if settings.gradient_checkpointing:
        model.gradient_checkpointing_enable()
    head = model.get_output_embeddings()
    head.__class__ = LossHead
    head.chunk = settings.loss_chunk or settings.max_length
    return head


def next_tokens(labels: torch.Tensor) -> torch.Tensor:
    """Return each position's target, [rows, positions]: position i predicts token i + 1, the last one nothing.

    Labels are shifted before a row is split among ranks, so that no rank needs a neighbour's first token.
    """
    return pad(labels[:, 1:], (0, 1), value=IGNORE)


def check_heads(config: PreTrainedConfig, ranks: int) -> None:
    """Raises InputError if tp.py has no plan for the model, or its ranks cannot have whole heads, as many each."""
    if config.model_type not in (MODEL_NAME, "llama"):
        raise InputError(f"MODEL_NAME: found a {config.model_type}; expected {MODEL_NAME} or a Llama")
    heads = getattr(config, "num_key_value_heads", config.num_attention_heads)  # fewer than query heads, or as many
    if heads % ranks:
        found = f"{config.model_type} has {counted(heads, 'key head')}"
        raise InputError(f"TP_SIZE={ranks}: {found}; expected a divisor: a rank has whole heads")


def parameter_groups(model: torch.nn.Module, weight_decay: float) -> list[dict]:
    """Return groups for the optimizer, one per mesh, because it updates no two meshes together; biases and norms do not
    decay.
    """
    groups: dict[tuple, list[torch.nn.Parameter]] = {}
    for parameter in model.parameters():
        key = (parameter.ndim > 1, getattr(parameter, "device_mesh", None))
        groups.setdefault(key, []).append(parameter)
    return [
        {"params": parameters, "weight_decay": weight_decay if decays else 0.0}
        for (decays, _), parameters in groups.items()
    ]


def optimizer_of(model: torch.nn.Module, settings: DimensionSettings, steps: int) -> tuple[AdamW, LambdaLR]:
    """Return by-hand's optimizer and learning rate, which falls to 0 in a straight line."""
    groups, fused = parameter_groups(model, settings.weight_decay), settings.optimizer == "adamw_torch_fused"
    optimizer = AdamW(groups, lr=settings.learning_rate, fused=fused)
    share = partial(share_of_learning_rate, warmup=settings.lr_warmup_steps, steps=steps)
    return optimizer, LambdaLR(optimizer, share)


def clip_grad_norm(model: torch.nn.Module, copies: int = 1, max_norm: float = 1.0) -> torch.Tensor:
    """Scale the gradients so that the norm of all parts is at most `max_norm`; return the norm before.

    PyTorch's function refuses gradients on several meshes. Here each rank adds up the squares of its parts, divided by
    the number of ranks that hold the same part.

    Args:
        copies: ranks that hold a parameter which is no DTensor.
    """
    squares, parts = torch.zeros((), device=own_device()), []
    for parameter in model.parameters():
        if parameter.grad is not None:
            parts.append(parameter.grad.to_local() if isinstance(parameter.grad, DTensor) else parameter.grad)
            squares += parts[-1].float().square().sum() / _copies(parameter.grad, copies)
    dist.all_reduce(squares)
    norm = squares.sqrt()
    for part in parts:
        part.mul_((max_norm / (norm + 1e-6)).clamp(max=1.0))
    return norm


def _copies(gradient: torch.Tensor, copies: int) -> int:
    if not isinstance(gradient, DTensor):
        return copies
    mesh = zip(gradient.device_mesh.shape, gradient.placements, strict=True)
    return dist.get_world_size() // prod(size for size, place in mesh if not place.is_replicate())


def save_weights(weights: dict[str, torch.Tensor], settings: DimensionSettings) -> None:
    """With SAVE=end, let all ranks write their parts of the weights into one checkpoint, a tied head once.

    torch.distributed.checkpoint opens it on any other number of ranks and in any other layout.
    """
    if settings.save != "no":  # SAVE=end
        save(weights, checkpoint_id=settings.output_path)
