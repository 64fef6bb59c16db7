"""Run on ranks by the tests beside it: a script of by-hand or of dimensions, then proof-RANK.pt in its run folder.

It has the parameters of each module that was moved as a whole, the norm of the gradients before clipping of each step
and, whole and by their names, the gradients of the first and the last step, and the weights at the end: of a pipeline
those that the rank has, a tied matrix under both names. Of a mixture of experts ddp.py has the auxiliary loss that
Transformers computes. UNTIED gives the custom model a head of its own.
"""

import importlib
import os
import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

from custom_model import model as gpt
from workshop.data import load
from workshop.data.encoding import IGNORE

sys.path.append(str(Path(__file__).parents[3] / "further/by-hand"))
script = importlib.import_module(sys.argv[1])
loop = importlib.import_module("cp") if sys.argv[1] == "ulysses" else script
common = importlib.import_module("common")
CLIPS = {"ddp": "clip_grad_norm_", "pp": "clip_grads_with_norm_"}
clip_name = CLIPS.get(sys.argv[1], "clip_grad_norm")
clip = getattr(torch.nn.utils if sys.argv[1] in CLIPS else importlib.import_module("shared"), clip_name)
to = torch.nn.Module.to
undo = ExitStack()  # of what would change the next training in this process
models: list[torch.nn.Module] = []
proof: dict[str, Any] = {"norms": [], "gradients": [], "moved": []}


def whole(tensor: torch.Tensor) -> torch.Tensor:
    return (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).detach().clone()


def named(attribute: str) -> dict[str, torch.Tensor]:
    pairs = (pair for model in models for pair in model.named_parameters(remove_duplicate=False))
    return {name: whole(getattr(parameter, attribute)) for name, parameter in pairs}


def load_data(*given: Any) -> Any:
    """The data of the first training in this process: all have the same."""
    if not hasattr(common, "kept_data"):
        common.kept_data = load.load_data(*given)
    return common.kept_data


def moved(module: torch.nn.Module, *given: Any, **named: Any) -> torch.nn.Module:
    """In the place of a module's `to`: what a GPU would hold of it at once."""
    if models:  # not the small one that is compared before
        proof["moved"].append(sum(weight.numel() for weight in module.parameters()))
    return to(module, *given, **named)


def build_model(*given: Any) -> torch.nn.Module:
    models.append(common.build_model(*given))
    if script.__name__ == "ddp" and hasattr(models[-1].config, "router_aux_loss_coef"):
        add_auxiliary_loss(models[-1])
    return models[-1]


def add_auxiliary_loss(model: torch.nn.Module) -> None:
    """To ddp.py's loss, which is divided by the targets of all micro-batches, each of which has as many here."""
    forward, loss_sum, seen = model.forward, script.loss_sum, []

    def with_router(**batch: Any) -> Any:
        seen.append(forward(**batch, output_router_logits=True))
        return seen[-1]

    def summed(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        targets = (labels[:, 1:] != IGNORE).sum()
        return loss_sum(logits, labels) + targets * model.config.router_aux_loss_coef * seen.pop().aux_loss

    model.forward = with_router
    undo.enter_context(patch.object(script, "loss_sum", summed))


def clipped(*given: Any) -> torch.Tensor:
    if len(proof["norms"]) in (0, int(os.environ["MAX_STEPS"]) - 1):
        proof["gradients"].append(named("grad"))
    norm = clip(*given)
    proof["norms"].append((given[-1] if norm is None else norm).item())
    return norm


if __name__ == "__main__":
    loop.build_model, loop.load_data = build_model, load_data
    setattr(loop, clip_name, clipped)
    undo.enter_context(patch.object(torch.nn.Module, "to", moved))
    untied = {"tie_word_embeddings": False} if os.environ.get("UNTIED") else {}
    gpt.SimpleGPTConfig = partial(gpt.SimpleGPTModel.config_class, **untied)
    with undo:
        script.main()
    proof["weights"] = named("data")
    torch.save(proof, Path(os.environ["RUN_DIR"], f"proof-{dist.get_rank()}.pt"))
