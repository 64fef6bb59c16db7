"""A training in fp16 must be able to go on from a checkpoint of FSDP2's optimizer."""

from types import SimpleNamespace

import torch
from accelerate import Accelerator
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict

from workshop.training.fsdp import start_scaler


def test_optimizer_of_a_checkpoint_is_loaded_with_fp16() -> None:
    model = torch.nn.Linear(2, 2)
    trained = torch.optim.AdamW(model.parameters(), lr=0.1)
    model(torch.ones(2)).sum().backward()
    trained.step()
    saved = get_optimizer_state_dict(model, trained)
    model.zero_grad()
    before = model.weight.detach().clone()
    # An optimizer behind Accelerate's scaler, as the Trainer has it with FP16=true.
    accelerator = Accelerator(cpu=True)
    accelerator.scaler = torch.amp.GradScaler("cpu")
    optimizer = accelerator.prepare_optimizer(torch.optim.AdamW(model.parameters(), lr=0.1))
    args = SimpleNamespace(device=torch.device("cpu"))
    start_scaler(SimpleNamespace(is_fsdp_enabled=True, accelerator=accelerator, args=args))
    set_optimizer_state_dict(model, optimizer, optim_state_dict=saved)
    assert torch.equal(model.weight, before)  # PyTorch's own step for it moves nothing
    loaded = get_optimizer_state_dict(model, optimizer)["state"]["weight"]["exp_avg"]
    assert torch.equal(loaded, saved["state"]["weight"]["exp_avg"])
