"""The simulated step against what the H200s measured (logs/reference) and against what FLOPs must be."""

from typing import Any

import pytest

from workshop.simulate.step_on_meta import StepShape, simulate

MIB = 2**20


@pytest.fixture(scope="module")
def textbook() -> dict[str, Any]:
    return simulate(StepShape("bloom-560m", batch_size=4, max_length=512))


def product_flops(step: dict[str, Any]) -> int:
    return sum(place["matrix product"]["flops"] for place in step["operations"].values() if "matrix product" in place)


def test_textbook_step_takes_what_the_h200_measured_and_has_the_flops_of_the_formula(textbook: dict[str, Any]) -> None:
    # fp32 weights, gradients and two moments beside it: logs/reference/h200x1/baseline, peak_mem_alloc_mib 19,597
    peak_bytes = max(part["peak_bytes"] for part in textbook["parts"])
    assert (peak_bytes + 16 * 559_214_592) / MIB == pytest.approx(19_597, rel=0.005)
    # 6 x parameters + 12 x layers x hidden size x length per token; norms and biases multiply nothing
    formula = (6 * 559_214_592 + 12 * 24 * 1024 * 512) * 4 * 512
    assert product_flops(textbook) == pytest.approx(formula, rel=0.01)
