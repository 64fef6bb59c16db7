"""Other projects' tables: what is assumed between nodes, and that hundreds of GPUs are not faster than one node."""

import pytest

from tools.plan import published
from tools.plan.published import between_nodes_s, tokens_per_second_per_gpu

STEP = {"parameters": 8_030_261_248, "blocks": 32}


def test_traffic_between_nodes_is_bytes_over_bandwidth_and_hops() -> None:
    assert between_nodes_s(STEP, 8, 8, "full_shard", 400) == 0
    sixteen = between_nodes_s(STEP, 16, 8, "full_shard", 400)
    # Three times 2 bytes per parameter, 15 / 16 of them, at 80 % of 400 GB/s; 99 rings of 14 hops by NVLink and one
    # over the network.
    by_hand = 6 * 8_030_261_248 * 15 / 16 / 320e9 + 99 * (8.4e-6 + 9.6e-6 + 14 * 3.4e-6)
    assert sixteen == pytest.approx(by_hand)
    assert between_nodes_s(STEP, 16, 8, "full_shard", 200) > 1.5 * sixteen


def test_a_ring_over_all_ranks_loses_to_one_over_nodes_where_there_are_thousands() -> None:
    shape = published.PUBLISHED[0][2]
    alone, full, hybrid = (
        tokens_per_second_per_gpu(shape, "h100-80gb", gpus, strategy, 400)
        for gpus, strategy in ((8, "full_shard"), (16_384, "full_shard"), (16_384, "hybrid_shard"))
    )
    assert alone >= hybrid > 2 * full
    assert tokens_per_second_per_gpu(shape, "h100-80gb", 64, "full_shard", 400) > 0.95 * alone
