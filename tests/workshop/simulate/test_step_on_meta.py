"""The simulated step against what the H200s measured (logs/reference) and against what FLOPs must be."""

from typing import Any

import pytest

from workshop.run_folder.errors import InputError
from workshop.simulate import step_on_meta
from workshop.simulate.step_on_meta import StepShape, build, simulate
from workshop.training.models import blocks_of

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


def test_every_block_is_passed_forward_and_backward_and_every_gradient_is_made(textbook: dict[str, Any]) -> None:
    units = [(part["phase"], part["unit"]) for part in textbook["parts"]]
    blocks = [str(number) for number in range(24)]
    assert units[:26] == [("forward", unit) for unit in ("embedding", *blocks, "head")]
    assert units[26:] == [("backward", unit) for unit in ("head", *reversed(blocks), "embedding")]
    assert textbook["parts"][-1]["gradient_bytes"] == 4 * textbook["parameters"]
    assert textbook["parts"][-1]["end_bytes"] < MIB  # nothing of the step is left but its gradients


@pytest.mark.parametrize(("name", "engine"), [("tiny", "autocast"), ("gpt2", "half")])
def test_checkpointing_keeps_less_between_the_passes(name: str, engine: str) -> None:
    plain, less = (
        simulate(StepShape(name, batch_size=2, max_length=64, engine=engine, gradient_checkpointing=on))
        for on in (False, True)
    )

    def kept(step: dict[str, Any]) -> int:
        return max(part["end_bytes"] for part in step["parts"] if part["phase"] == "forward" and part["unit"] != "head")

    assert kept(less) < kept(plain) / 2
    assert product_flops(less) > product_flops(plain)


@pytest.mark.parametrize("engine", ["autocast", "half"])
def test_three_blocks_stand_for_all_to_the_last_byte(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shape = StepShape("gpt2", batch_size=2, max_length=64, engine=engine, gradient_checkpointing=True)
    three = simulate(shape)
    monkeypatch.setattr(step_on_meta, "_BLOCKS", 12)
    assert len(blocks_of(build(shape))) == 12
    assert simulate(shape) == three


def test_rows_longer_than_the_learnt_positions_are_refused() -> None:
    with pytest.raises(InputError, match="MAX_LENGTH=1025: gpt2 has 1024 positions"):
        build(StepShape("gpt2", batch_size=1, max_length=1025))
