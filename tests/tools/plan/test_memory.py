"""Strategies' terms against what the H200s measured; the simulated activations of these runs are given, MiB."""

import pytest

from tools.plan.memory import peak_allocated
from tools.plan.workload import Strategy

MIB = 2**20
BLOOM_1B7 = 1_722_408_960
# bloom-1b7, 4 x 512 tokens, half precision, by workshop.simulate: the peak is the loss's, before any gradient.
STEP = {
    "parts": [{"peak_bytes": 11_281 * MIB, "peak_with_gradients_bytes": 11_281 * MIB, "gradient_bytes": 0}],
    "parameters": BLOOM_1B7,
    "block_parameters": 50_358_272,
    "blocks": 24,
    "largest_parameter": 250_880 * 2048,
}
OFFLOADED = {"offload_optimizer": {"device": "cpu"}}
ZERO2 = {"stage": 2, "overlap_comm": True}


@pytest.mark.parametrize(
    ("zero", "measured_mib"),  # logs/reference/h200x2*/deepspeed-multi-gpu: 2 GPUs, fp16, 4 micro-batches
    [
        ({"stage": 0}, 39_489),
        ({"stage": 1}, 28_729),
        ({"stage": 1, **OFFLOADED}, 19_851),
        (ZERO2, 26_155),
        (ZERO2 | OFFLOADED, 15_612),
        ({"stage": 3}, 27_351),
        ({"stage": 3, **OFFLOADED, "offload_param": {"device": "cpu"}}, 14_224),
    ],
    ids=lambda value: "-".join(map(str, value)) if isinstance(value, dict) else None,
)
def test_zero_takes_what_was_measured_within_a_quarter_percent(zero: dict, measured_mib: float) -> None:
    strategy = Strategy(f"zero{zero['stage']}", 2, 4, True, {"zero_optimization": zero})
    assert sum(peak_allocated(STEP, strategy).values()) / MIB == pytest.approx(measured_mib, rel=0.0025)


def test_shards_of_more_ranks_are_smaller_and_offloaded_states_are_none() -> None:
    def total(world_size: int, **config: object) -> float:
        return sum(peak_allocated(STEP, Strategy("fsdp2", world_size, 1, True, config)).values())

    assert total(8) < total(4) < total(2)
    assert total(4, dp_replicate_size=2) == total(2)
    assert total(2) - total(2, cpu_offload=True) == pytest.approx(12 * BLOOM_1B7 / 2)
    assert total(4, reshard_after_forward=False) - total(4) == 2 * 23 * 50_358_272
    one, ddp = (peak_allocated(STEP, Strategy(method, 2, 1, True, {})) for method in ("none", "ddp"))
    assert sum(ddp.values()) - sum(one.values()) == 4 * BLOOM_1B7  # its buckets


@pytest.mark.parametrize("name", ["offload_optimizer", "offload_param", "zenflow"])
def test_null_in_a_deepspeed_configuration_means_that_it_is_left_out(name: str) -> None:
    """It ended in a traceback, or zenflow counted as on."""
    without, null = (
        Strategy("zero2", 2, 4, True, {"zero_optimization": zero}) for zero in (ZERO2, ZERO2 | {name: None})
    )
    assert peak_allocated(STEP, null) == peak_allocated(STEP, without)
    assert (null.updates_elsewhere, null.share_on_cpu, null.pinned) == (False, 0, False)


@pytest.mark.parametrize(("method", "shards", "whole_blocks"), [("ddp", 1, 0), ("zero3", 4, 24), ("fsdp2", 4, 1)])
def test_adapters_alone_have_states_and_every_rank_all_4_bit_scales(
    method: str, shards: int, whole_blocks: int
) -> None:
    trained = {"parameters": 10**7, "block_parameters": 4 * 10**5, "largest_parameter": 10**5}
    adapted = STEP | {"trained": trained, "frozen": {"bytes": 10**9, "block_bytes": 2 * 10**7, "scale_bytes": 10**6}}
    terms = peak_allocated(adapted, Strategy(method, 4, 1, True, {}))
    assert (terms["frozen weights"], terms["optimizer"]) == (10**9 / shards + 10**6, 8 * 10**7 / shards)
    gathered = (10**9 + 2 * 10**7 - (24 - whole_blocks) * 208 * 10**5) * (whole_blocks > 0)
    assert terms.get("gathered weights", 0) == gathered
