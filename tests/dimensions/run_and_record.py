"""Run on ranks by test_tp.py: a script of by-hand or of dimensions, then proof-RANK.pt in its run folder.

It has the norm of the gradients before clipping of each step and, whole and by their names, the gradients of the first
and the last step, and the weights at the end.
"""

import importlib
import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

sys.path.append(str(Path(__file__).parents[2] / "by-hand"))
script = importlib.import_module(sys.argv[1])
common = importlib.import_module("common")
clip_name = "clip_grad_norm_" if sys.argv[1] == "ddp" else "clip_grad_norm"
clip = getattr(torch.nn.utils if sys.argv[1] == "ddp" else importlib.import_module("shared"), clip_name)
models: list[torch.nn.Module] = []
proof: dict[str, Any] = {"norms": [], "gradients": []}


def whole(tensor: torch.Tensor) -> torch.Tensor:
    return (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).detach().clone()


def build_model(*given: Any) -> torch.nn.Module:
    models.append(common.build_model(*given))
    return models[-1]


def clipped(*given: Any) -> torch.Tensor:
    if len(proof["norms"]) in (0, int(os.environ["MAX_STEPS"]) - 1):
        proof["gradients"].append({name: whole(parameter.grad) for name, parameter in models[-1].named_parameters()})
    norm = clip(*given)
    proof["norms"].append(norm.item())
    return norm


if __name__ == "__main__":
    script.build_model = build_model
    setattr(script, clip_name, clipped)
    script.main()
    proof["weights"] = {name: whole(parameter) for name, parameter in models[-1].named_parameters()}
    torch.save(proof, Path(os.environ["RUN_DIR"], f"proof-{dist.get_rank()}.pt"))
