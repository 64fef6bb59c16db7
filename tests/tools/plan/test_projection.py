"""Thousands of GPUs: what must grow with them, and how far other projects' tables are."""

import pytest

from tools.__main__ import main
from tools.plan import projection
from tools.plan.projection import between_nodes_s, project

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
    found = {
        (one.strategy, one.gpus): one for one in project(projection.shape("llama-3.1-8b", 8192, 2), "h100-80gb", 400)
    }
    assert found["full_shard", 64].efficiency > 0.95
    assert found["hybrid_shard", 16_384].efficiency > 2 * found["full_shard", 16_384].efficiency
    assert found["full_shard", 8].step_s == found["hybrid_shard", 8].step_s


def test_command_prints_its_assumptions_and_draws(tmp_path, capsys) -> None:
    words = ["plan", "--model", "llama-2-7b", "--gpu", "h100-80gb", "--length", "4096", "--batch", "2"]
    output = tmp_path / "scale.png"
    assert main([*words, "--project", "1e12", "--price", "2", "--fabric", "50", "--output", str(output)]) == 0
    text = capsys.readouterr().out
    assert "Assumed: 50 GB/s" in text and "| 16,384 | hybrid_shard |" in text
    assert output.stat().st_size > 1000
    assert main([*words, "--project", "0"]) == 2
    assert main([*words, "--project", "1e9", "--fabric", "0"]) == 2
    assert "--fabric 0: expected more than 0 GB/s" in capsys.readouterr().err
