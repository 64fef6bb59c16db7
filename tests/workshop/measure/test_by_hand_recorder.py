"""The phases of a first step are told apart: each shows the state that it adds."""

import pytest
import torch

from workshop.measure import by_hand_recorder


def test_gradients_come_with_the_backward_pass_and_moments_with_the_update(monkeypatch: pytest.MonkeyPatch) -> None:
    model = torch.nn.Linear(4, 3)
    optimizer = torch.optim.AdamW(model.parameters())

    def numbers() -> int:
        """What a GPU would hold of the states, in numbers."""
        tensors = [*model.parameters(), *(p.grad for p in model.parameters() if p.grad is not None)]
        moments = [s for state in optimizer.state.values() for s in state.values() if s.numel() > 1]
        return sum(tensor.numel() for tensor in tensors + moments)

    monkeypatch.setattr(by_hand_recorder, "allocated_mib", numbers)
    phases = by_hand_recorder.MemoryPhases(model)
    phases.note("loaded")
    for _ in range(2):  # the second step, after the end, changes nothing
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        phases.end()
    assert phases.mib == {"loaded": 15, "forward": 15, "backward": 30, "update": 60}
