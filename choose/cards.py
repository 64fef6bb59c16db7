"""The eight cards: a model, GPUs, and which of the planner's strategies the answer key accepts and rejects, and why."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Card:
    """Attributes: node_gib: CPU memory of a node; accepted, rejected: by the planner's strategy the reason."""

    model: str
    gpu: str
    node_gib: int
    accepted: dict[str, str]
    rejected: dict[str, str]
    gpus: int = 1
    nodes: int = 1
    fabric_gb_per_s: float | None = None

    @property
    def question(self) -> str:
        """The words after `python -m tools plan model`."""
        nodes = f" --nodes {self.nodes} --fabric {self.fabric_gb_per_s}" if self.nodes > 1 else ""
        return f"{self.model} --gpus {self.gpus} --gpu {self.gpu} --node-memory {self.node_gib}{nodes}"


ADAPTERS = "only the adapters have gradients and moments"
ALONE = "on one GPU it shares nothing"

CARDS = [
    Card(
        *("llama-3.2-1b", "rtx-4090", 128),
        accepted={
            "one GPU, 8-bit": "moments of 2 bytes, not 8; no copies over PCIe",
            "LoRA one GPU": ADAPTERS,
            "zero1_offload": "the optimizer's states are in CPU memory",
            "one GPU": "with checkpointing and two rows; little to spare",
        },
        rejected={"zero1": ALONE, "zero2": ALONE},
    ),
    Card(
        *("llama-2-7b", "rtx-4090", 128),
        accepted={"QLoRA one GPU": "weights in 4 bits", "LoRA one GPU": "14 bytes per weight fewer"},
        rejected={"zero3_offload": "fits the GPU, not the CPU memory"},
    ),
    Card(
        *("bloom-7b1", "a10", 768),
        accepted={"zero3_offload": "the GPU holds a few layers at a time", "LoRA one GPU": ADAPTERS},
        rejected={
            "zero2_offload": "the weights, 2 bytes each, stay on the GPU",
            "one GPU, 8-bit": "the weights, 4 bytes each, are too large alone",
        },
    ),
    Card(
        *("llama-3.1-8b", "h100", 2048),
        accepted={
            "zero2_offload": "the weights fit, the rest is in CPU memory",
            "one GPU, 8-bit": "moments of 2 bytes, not 8",
            "LoRA one GPU": ADAPTERS,
        },
        rejected={"one GPU": "16 bytes per weight", "zero2": ALONE, "zero3": ALONE},
    ),
    Card(
        *("qwen-2.5-7b", "a100-40gb", 1024),
        accepted={
            "zero3_offload": "least GPU memory",
            "zero2_offload": "equal to ZeRO-3 within the planner's error",
            "LoRA ddp": ADAPTERS,
        },
        rejected={"full_shard": "half of the states is more than the GPU has"},
        gpus=2,
    ),
    Card(
        *("bloom-1b7", "h200", 2048),
        accepted={
            "ddp": "the simplest; the intervals of the three overlap",
            "zero1": "as DDP, a line more",
            "shard_grad_op": "expected fastest, within the error",
        },
        rejected={
            "zero3": "gathers weights that fit whole",
            "zero2_offload": "waits for the CPU, and the states fit",
            "full_shard_offload": "waits for the CPU, and the states fit",
        },
        gpus=2,
    ),
    Card(
        *("llama-3.1-8b", "h100", 2048),
        accepted={"shard_grad_op": "a quarter of the states fits, with checkpointing", "LoRA zero2": ADAPTERS},
        rejected={"ddp": "all 16 bytes per weight on each GPU"},
        gpus=4,
    ),
    Card(
        *("llama-3.1-70b", "h100", 2048),
        accepted={
            "hybrid_shard_offload": "gathers inside a node, over NVLink",
            "QLoRA zero2": "weights in 4 bits, whole on each GPU",
        },
        rejected={"full_shard": "close in memory, and gathers between the nodes"},
        gpus=16,
        nodes=2,
        fabric_gb_per_s=4.8,
    ),
]
