"""Code that tp.py, cp.py and pp.py share beside the lesson; more is in by-hand's common.py and ddp.py."""

from collections.abc import Callable
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
from transformers import PreTrainedModel

from custom_model.settings import MODEL_NAME
from workshop.data.encoding import IGNORE, Encoded, PaddingCollator
from workshop.kernels.fast_models.exactness import ROW, difference
from workshop.kernels.fast_models.loss import LossHead
from workshop.record.errors import InputError
from workshop.training.models import model_config


def check_model(settings: DimensionSettings, loss_sum: Callable[..., torch.Tensor]) -> None:
    """Raises InputError if a changed model is another one than the library's, before data and weights are loaded.

    Args: loss_sum: changes a model, and returns the sum of its loss over the targets of a batch.
    """

    def change(model: PreTrainedModel, examples: list[Encoded]) -> torch.Tensor:
        batch = PaddingCollator(0, ROW)(examples)
        return loss_sum(model, batch) / (next_tokens(batch["labels"]) != IGNORE).sum()

    if settings.model_name != MODEL_NAME:
        config = model_config(settings).get_text_config(decoder=True)
        settings.check_model(config.to_dict())  # also what its config.json leaves to the type's defaults
        if reason := difference(config, settings.max_length, change, "cpu"):
            found = f"{settings.dimension}.py would train another model than this {config.model_type}"
            raise InputError(f"MODEL_NAME='{settings.model_name}': {found} ({reason})")


def loss_of_head(settings: DimensionSettings, model: PreTrainedModel, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """The sum of the loss by the head of `use_loss_head` alone."""
    use_loss_head(model, settings).targets = next_tokens(batch["labels"])
    return model(input_ids=batch["input_ids"]).logits


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
