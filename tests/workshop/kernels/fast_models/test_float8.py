"""FP8 rounds the products of the blocks' linear layers, and nothing else; it stays near the exact training."""

from importlib.util import find_spec

import pytest
import torch

from tests.workshop.kernels.fast_models.small_models import EXAMPLES, LENGTH, batch, faster, gradients, small
from workshop.kernels.fast_models import pack, use_float8
from workshop.kernels.fast_models.float8 import fits
from workshop.training.models import blocks_of

needs_torchao = pytest.mark.skipif(find_spec("torchao") is None, reason="requirements-gpu.txt")


@needs_torchao
@pytest.mark.parametrize("recipe", ["tensorwise", "rowwise"])
@pytest.mark.parametrize("family", ["tiny", "llama"])
def test_loss_and_gradients_are_near_the_exact_ones_but_not_equal(family: str, recipe: str) -> None:
    found = []
    for float8 in (False, True):
        model = faster(small(family), attention="sdpa", loss="chunked")
        if float8:
            use_float8(blocks_of(model), recipe, emulate=True)
        loss = model(**batch(pack(EXAMPLES, LENGTH), labelled=True)).loss
        loss.backward()
        found.append((loss.detach(), gradients(model)))
    (exact_loss, exact), (loss, gradient) = found
    assert loss == pytest.approx(exact_loss.item(), rel=0.02)
    assert 1e-3 < (gradient - exact).norm() / exact.norm() < 0.3


@pytest.mark.parametrize(
    ("sizes", "pays"), [((4864, 896), True), ((4096, 1024), True), ((1536, 256), False), ((896, 896), False)], ids=str
)
def test_small_products_whose_casts_cost_more_than_float8_gains_stay(sizes: tuple[int, int], pays: bool) -> None:
    assert fits(torch.nn.Linear(*sizes, device="meta"), "") == pays


@needs_torchao
def test_only_the_blocks_layers_are_replaced_and_all_of_theirs() -> None:
    model = faster(small("llama"))
    names = dict(model.named_parameters()).keys()
    use_float8(blocks_of(model), "tensorwise", emulate=True)
    replaced = {name for name, module in model.named_modules() if type(module).__name__ == "Float8Linear"}
    blocks = {f"model.layers.{block}" for block in range(2)}
    layers = [f"self_attn.{name}_proj" for name in "qkvo"] + [f"mlp.{name}_proj" for name in ("gate", "up", "down")]
    assert replaced == {f"{block}.{layer}" for block in blocks for layer in layers}
    assert dict(model.named_parameters()).keys() == names  # a checkpoint fits both ways
    assert isinstance(model.lm_head, torch.nn.Linear)
