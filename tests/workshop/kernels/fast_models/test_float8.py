"""FP8 rounds the products of the blocks' linear layers, and nothing else; it stays near the exact training."""

from importlib.util import find_spec

import pytest

from tests.workshop.kernels.fast_models.small_models import EXAMPLES, LENGTH, batch, faster, gradients, small
from workshop.kernels.fast_models import pack, use_float8
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
