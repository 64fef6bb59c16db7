"""What DeepSpeed 0.19.8 moves over PCIe in a step with CPU offload (runtime/zero/stage_1_and_2.py, stage3.py).

For P parameters on N GPUs of one host, A micro-batches, half precision of 2 bytes (fp32: 4), r: stage 3's `ratio`, the
share of the optimizer on the CPU:

    gradients to the CPU   stages 1, 2: 4P/N in fp32; with A > 1 also A x 2P/N, as they are added up
                           stage 3: A x 2P/N, then r x 4P/N in fp32
    back to the GPU        stages 1, 2: A x 2P/N with A > 1, to add to; stage 3: A x 2P/N, for their norm or to add to
    weights to the GPU     parameters offloaded: 2A x 2P/N, once for forward and once for backward
                           else those that were updated: stages 1, 2: 2P/N; stage 3: r x 2P/N from pageable memory,
                           because PyTorch makes half precision of them in a buffer of its own
"""

from typing import Any, NamedTuple

FP32_BYTES = 4


class Moved(NamedTuple):
    """Bytes of a GPU in a step; the last ones come from pageable memory."""

    to_cpu: float
    to_gpu: float
    to_gpu_pageable: float


def moved_bytes(zero: dict[str, Any], shard: float, micro_batches: int, width: int) -> Moved:
    """Args: zero: zero_optimization, whose optimizer is offloaded; shard: P/N; width: bytes of a computing weight."""
    on_cpu, stage_3 = zero["offload_optimizer"].get("ratio", 1.0), zero["stage"] == 3
    added = width * shard * micro_batches * (stage_3 or micro_batches > 1)
    to_cpu = added + FP32_BYTES * on_cpu * shard
    if (zero.get("offload_param") or {}).get("device") == "cpu":
        return Moved(to_cpu, added + 2 * micro_batches * width * shard, 0)
    updated = width * on_cpu * shard
    return Moved(to_cpu, added, updated) if stage_3 else Moved(to_cpu, added + updated, 0)
