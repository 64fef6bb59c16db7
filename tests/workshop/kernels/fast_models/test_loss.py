"""The chunked loss is the cross-entropy, and it never holds all logits."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from workshop.kernels.fast_models.loss import LossHead

POSITIONS, HIDDEN, VOCABULARY = 50, 24, 301


def problem(device: str = "cpu") -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    hidden = torch.randn(POSITIONS, HIDDEN).to(device).requires_grad_()
    weight = torch.randn(VOCABULARY, HIDDEN).to(device).requires_grad_()
    targets = torch.randint(0, VOCABULARY, (POSITIONS,)).to(device)
    targets[10:23] = -100
    return hidden, weight, targets


def loss_sum(
    hidden: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor, method: str, chunk: int
) -> torch.Tensor:
    head = LossHead(HIDDEN, VOCABULARY, bias=False, device="meta")
    del head.weight
    head.weight, head.implementation, head.chunk = weight, method, chunk
    return head(hidden, targets)


def solved(method: str, chunk: int, device: str = "cpu") -> tuple[torch.Tensor, ...]:
    hidden, weight, targets = problem(device)
    loss = loss_sum(hidden, weight, targets, method, chunk)
    (loss * 3).backward()  # the Trainer multiplies by the number of ranks
    return loss.detach(), hidden.grad, weight.grad


@pytest.mark.parametrize("chunk", [1, 7, 10, 50, 1000])
def test_chunks_of_any_size_give_the_full_loss_and_its_gradients(chunk: int) -> None:
    for found, expected in zip(solved("chunked", chunk), solved("full", chunk), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("targets", [torch.full((POSITIONS,), -100), torch.empty(0, dtype=torch.int64)])
def test_micro_batch_without_any_target_gives_zero_and_not_nan(targets: torch.Tensor) -> None:
    hidden, weight, _ = problem()
    loss = loss_sum(hidden[: len(targets)], weight, targets, "chunked", 16)
    loss.backward()
    assert loss == 0
    assert torch.equal(weight.grad, torch.zeros_like(weight))


class Largest(TorchDispatchMode):
    """The number of elements of the largest tensor that any operation made."""

    elements = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple) else (result,):
            if isinstance(tensor, torch.Tensor):
                self.elements = max(self.elements, tensor.numel())
        return result


@pytest.mark.parametrize(("method", "positions_at_a_time"), [("full", POSITIONS), ("chunked", 30)])
def test_logits_of_all_positions_never_exist_together(method: str, positions_at_a_time: int) -> None:
    with Largest() as largest:
        solved(method, chunk=30)
    assert largest.elements == positions_at_a_time * VOCABULARY


@pytest.mark.parametrize(("trains_head", "products"), [(True, 3), (False, 2)])
def test_chunked_loss_computes_no_gradient_of_a_frozen_head(trains_head: bool, products: int) -> None:
    hidden, weight, _ = problem()
    weight = weight.detach().requires_grad_(trains_head)
    with FlopCounterMode(display=False) as counted:
        loss_sum(hidden, weight, torch.arange(POSITIONS), "chunked", 7).backward()
    assert counted.get_total_flops() == products * 2 * POSITIONS * HIDDEN * VOCABULARY
    assert hidden.grad is not None and (weight.grad is not None) == trains_head


@pytest.mark.skipif(not torch.cuda.is_available(), reason="these kernels need a GPU")
@pytest.mark.parametrize("method", ["chunked", "liger"])
@pytest.mark.parametrize("chunk", [7, 1000])
def test_kernels_give_the_full_loss_and_its_gradients(method: str, chunk: int) -> None:
    if method == "liger":
        pytest.importorskip("liger_kernel")
    for found, expected in zip(solved(method, chunk, "cuda"), solved("full", chunk, "cuda"), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
