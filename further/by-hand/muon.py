"""Muon for the blocks' matrices, AdamW for the rest: embedding, head, norms and biases.

torch.optim.Muon makes the momentum of a matrix nearly orthogonal: five Newton-Schulz iterations, products of the whole
matrix. With DDP each rank has it. FSDP2's are DTensors: a rank has some rows, so each product gathers or sums.
"""

from typing import Any

import torch


class MuonAndAdamW(torch.optim.Optimizer):
    """One optimizer for the script: takes the matrices of `blocks` out of `adamw` and gives them to Muon."""

    def __init__(self, adamw: torch.optim.AdamW, blocks: torch.nn.ModuleList) -> None:
        matrices = {id(parameter): parameter for parameter in blocks.parameters() if parameter.ndim == 2}
        for group in adamw.param_groups:
            group["params"] = [parameter for parameter in group["params"] if id(parameter) not in matrices]
        decaying = adamw.param_groups[0]
        muon = torch.optim.Muon(
            matrices.values(),
            lr=decaying["lr"],
            weight_decay=decaying["weight_decay"],
            adjust_lr_fn="match_rms_adamw",  # updates as large as AdamW's, which can have its learning rate
        )
        self.parts = (muon, adamw)
        super().__init__([group for part in self.parts for group in part.param_groups], {})
        for part in self.parts:
            part.state = self.state

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for part in self.parts:
            part.step()
