"""What a DeepSpeed configuration keeps in CPU memory, and what DeepSpeed 0.19.8 moves over PCIe in a step for it
(runtime/zero/stage_1_and_2.py, stage3.py).

For P parameters on N GPUs of one host, A micro-batches, half precision of 2 bytes (fp32: 4), r: stage 3's `ratio`, the
share of the optimizer on the CPU:

    gradients to the CPU   stages 1, 2: 4P/N in fp32; with A > 1 also A x 2P/N, as they are added up
                           stage 3: A x 2P/N, then r x 4P/N in fp32
    back to the GPU        stages 1, 2: A x 2P/N with A > 1, to add to; stage 3: A x 2P/N, for their norm or to add to
    weights to the GPU     parameters offloaded: 2A x 2P/N, once for forward and once for backward
                           else those that were updated: stages 1, 2: 2P/N; stage 3: r x 2P/N from pageable memory,
                           because PyTorch makes half precision of them in a buffer of its own
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, Self

FP32_BYTES = 4


class Offload(NamedTuple):
    """What a configuration keeps in CPU memory.

    Attributes: share: of the optimizer's states, and of their update: 1, or stage 3's `ratio`; parameters: the weights,
        too; pinned: DeepSpeed's default.
    """

    share: float
    parameters: bool
    pinned: bool

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Self:
        """Args: content: of DeepSpeed under today's names, or of FSDP, whose `cpu_offload` keeps all there."""
        if content.get("cpu_offload"):
            return cls(1.0, True, True)
        zero = content.get("zero_optimization", {})
        optimizer, parameters = (zero.get(name) or {} for name in ("offload_optimizer", "offload_param"))
        return cls(
            share=optimizer.get("ratio", 1.0) if optimizer.get("device") == "cpu" else 0.0,
            parameters=parameters.get("device") == "cpu",
            pinned=optimizer.get("device") == "cpu" and optimizer.get("pin_memory", True),
        )


def moved_bytes(content: Mapping[str, Any], shard: float, micro_batches: int, width: int) -> tuple[float, float]:
    """Return a GPU's bytes over PCIe in a step, and how many of them come from pageable memory.

    Args: content: of a file of DeepSpeed, with offload; shard: P/N; width: bytes of a computing weight.
    """
    offload, stage_3 = Offload.of(content), content["zero_optimization"]["stage"] == 3
    added = width * shard * micro_batches if stage_3 or micro_batches > 1 else 0
    to_cpu = added + FP32_BYTES * offload.share * shard
    if offload.parameters:
        return to_cpu + added + 2 * micro_batches * width * shard, 0
    updated = width * offload.share * shard
    return to_cpu + added + updated, updated if stage_3 else 0
