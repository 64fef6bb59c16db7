"""The ladder's rungs with adapters are what peft trains on the library's model; a frozen head costs less."""

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch.utils.flop_counter import FlopCounterMode

from tests.workshop.kernels.fast_models.small_models import EXAMPLES, LENGTH, batch, faster, small
from workshop.kernels.fast_models import pack
from workshop.kernels.fast_models.loss import loss_sum
from workshop.training.four_bits import quantize_blocks

TOP = {"attention": "sdpa", "loss": "chunked", "chunk": 37}


def with_adapters(model: torch.nn.Module, four_bits: bool) -> PeftModel:
    """The same random adapters of all linear layers, whose B is not zero: A has gradients, too."""
    if four_bits:
        quantize_blocks(model, torch.float32)
    adapted = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", r=4, target_modules="all-linear"))
    torch.manual_seed(0)
    for parameter in adapted.parameters():
        if parameter.requires_grad:
            torch.nn.init.normal_(parameter, std=0.1)
    return adapted


def trained(model: PeftModel, inputs: dict[str, torch.Tensor]) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """The loss, and the gradients of all that have one."""
    loss = model(**inputs).loss
    loss.backward()
    return loss.detach(), {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize(("name", "four_bits"), [("tiny", True), ("llama", False)])
def test_top_rung_has_the_losses_and_gradients_of_the_librarys_model_with_adapters(name: str, four_bits: bool) -> None:
    loss, gradients = trained(with_adapters(small(name), four_bits), batch(EXAMPLES))
    fast = with_adapters(faster(small(name), **TOP), four_bits)
    fast_loss, fast_gradients = trained(fast, batch(pack(EXAMPLES, LENGTH), labelled=True))
    torch.testing.assert_close(fast_loss, loss, rtol=0, atol=1e-5)
    assert fast_gradients.keys() == gradients.keys()
    assert all(".lora_" in name for name in gradients)
    for adapter, gradient in gradients.items():
        torch.testing.assert_close(fast_gradients[adapter], gradient, rtol=1e-4, atol=1e-5, msg=adapter)
    assert max(gradient.abs().max() for gradient in gradients.values()) > 0.05


@pytest.mark.parametrize(("trains_head", "products"), [(True, 3), (False, 2)])
def test_chunked_loss_computes_no_gradient_of_a_frozen_head(trains_head: bool, products: int) -> None:
    hidden = torch.randn(50, 24, requires_grad=True)
    weight = torch.randn(301, 24, requires_grad=trains_head)
    with FlopCounterMode(display=False) as counted:
        loss_sum(hidden, weight, torch.randint(0, 301, (50,)), "chunked", 7).backward()
    assert counted.get_total_flops() == products * 2 * 50 * 24 * 301
    assert hidden.grad is not None and (weight.grad is not None) == trains_head
