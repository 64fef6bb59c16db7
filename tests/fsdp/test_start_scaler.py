"""A training in fp16 must be able to go on from a checkpoint of FSDP2's optimizer."""

from types import SimpleNamespace

import torch
from accelerate import Accelerator
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict

from workshop.training.fsdp import start_scaler


def trained_state() -> tuple[torch.nn.Module, dict]:
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    model(torch.ones(2)).sum().backward()
    optimizer.step()
    state = get_optimizer_state_dict(model, optimizer)
    model.zero_grad()
    return model, state


def fp16_optimizer(model: torch.nn.Module) -> tuple[torch.optim.Optimizer, SimpleNamespace]:
    """An optimizer behind Accelerate's scaler, as the Trainer has it with FP16=true, and as much of a trainer."""
    accelerator = Accelerator(cpu=True)
    accelerator.scaler = torch.amp.GradScaler("cpu")
    optimizer = accelerator.prepare_optimizer(torch.optim.AdamW(model.parameters(), lr=0.1))
    trainer = SimpleNamespace(
        is_fsdp_enabled=True, accelerator=accelerator, args=SimpleNamespace(device=torch.device("cpu"))
    )
    return optimizer, trainer


def test_optimizer_of_a_checkpoint_is_loaded_with_fp16() -> None:
    model, saved = trained_state()
    before = model.weight.detach().clone()
    optimizer, trainer = fp16_optimizer(model)
    start_scaler(trainer)
    set_optimizer_state_dict(model, optimizer, optim_state_dict=saved)
    assert torch.equal(model.weight, before)  # PyTorch's own step for it moves nothing
    loaded = get_optimizer_state_dict(model, optimizer)["state"]["weight"]["exp_avg"]
    assert torch.equal(loaded, saved["state"]["weight"]["exp_avg"])
