"""A run's workload: the step to simulate, and the strategy that places its states."""

import json
from dataclasses import dataclass
from functools import cached_property
from math import ceil
from typing import Any

from tools.plan.layout import Layout
from workshop.settings.offload import Offload

# Examples in a packed row of 512 positions: samples / rows in steps.csv of all rungs from 4 on in logs/reference, 2.88
# to 2.96. Examples of SQuAD are as long as their text, so other lengths hold proportionally many.
EXAMPLES_PER_POSITION = 2.9 / 512
# The network between nodes by default: TCP sockets, as nccl.log of logs/reference/h200x4/custom_model
# has it for 2 and 4 emulated nodes (4.7 and 4.9 GB/s).
SOCKETS_GB_PER_S = 4.8


@dataclass(frozen=True)
class Strategy:
    """How a step's states lie on the GPUs."""

    sharding: str  # none, ddp, zero0 to zero3, fsdp1, fsdp2; as run.json's sharding.method
    world_size: int  # ranks
    accumulation: int  # micro-batches per optimizer step
    half: bool  # whether the run has a half precision; DeepSpeed then keeps fp32 master weights beside the half ones
    config: dict[str, Any]  # the launcher's JSON, {} without one
    moment_bytes: int = 8  # of a parameter's two moments, where DeepSpeed does not keep them
    weight_bytes: int = 4  # of a parameter that the Trainer's optimizer updates

    # Bytes of a parameter in the precision that ZeRO and FSDP compute in.
    width = property(lambda self: 2 if self.half else 4)
    # DeepSpeed's own part of the configuration; {} without it.
    zero = property(lambda self: self.config.get("zero_optimization", {}))
    # What lies in CPU memory.
    offload = property(lambda self: Offload.of(self.config))
    offloads = property(lambda self: self.offload.share > 0 or self.offload.parameters)
    # Whether FSDP frees a block's gathered weights between its forward and its backward pass.
    reshards = property(lambda self: self.config.get("reshard_after_forward", True) in (True, "full_shard"))

    @property
    def shards(self) -> int:
        """Ranks that share one copy of the optimizer's states."""
        if self.sharding.startswith("fsdp"):
            return self.world_size // self.config.get("dp_replicate_size", 1)
        return self.world_size if self.sharding in ("zero1", "zero2", "zero3") else 1


@dataclass(frozen=True)
class Workload:
    """A run's work, and for how long."""

    shape: dict[str, Any]  # the fields of workshop.simulate.step_on_meta.StepShape
    strategy: Strategy
    nodes: int = 1
    fabric_gb_per_s: float = SOCKETS_GB_PER_S  # all-reduce bandwidth between nodes, as in nccl.log
    filled: float = 1  # share of the positions: less where rows are padded to the longest of their micro-batch only
    attention_share: float = 1  # time of the attention beside flex_attention's
    data_workers: bool = False  # other processes make the rows
    cuda_graph: bool = False  # a call launches all kernels of a micro-batch, so the host decides nothing
    examples: int = 0
    epochs: int = 1
    max_steps: int = 0  # optimizer steps; 0: `epochs` times all examples
    eval_examples: int = 0  # evaluated after each epoch
    examples_per_row: float = 1
    save: str = "no"  # no, steps, epoch, or end
    save_steps: int = 0  # of `steps`; 0: so seldom that it takes 1 % of the time
    pretrained: bool = False  # weights are read, into CPU memory; else they are random
    # Of ranks that share rows, matrices or layers; then `shape` has a rank's part of a row.
    layout: Layout | None = None

    ranks_per_node = property(lambda self: self.strategy.world_size // self.nodes)
    row_length = property(lambda self: self.layout.length if self.layout else self.shape["max_length"])
    # Positions of all ranks in a step, padding included.
    tokens_per_step = property(lambda self: self.rows_per_step * self.row_length * self.filled)
    # Optimizer steps that pass all examples once, and those of the run.
    steps_per_epoch = property(lambda self: ceil(self.examples / (self.rows_per_step * self.examples_per_row)))
    steps = property(lambda self: self.max_steps or self.steps_per_epoch * self.epochs)
    # One after each epoch, the unfinished last one of MAX_STEPS included.
    evaluations = property(lambda self: max(1, ceil(self.steps / max(1, self.steps_per_epoch))))

    # Weights in one piece on one GPU, without a sharding library.
    plain = property(lambda self: self.strategy.sharding == "none" and not self.layout)

    @property
    def way(self) -> str:
        """What reference runs have in common with a row that they speak for."""
        adapters = "adapters" if self.shape.get("adapter_rank") else ""
        weights = "bf16 weights" if self.strategy.weight_bytes == 2 else ""
        offload = "offload" if self.strategy.offloads else ""
        return ", ".join(filter(None, [adapters, weights, self.strategy.sharding, offload]))

    @property
    def family(self) -> str:
        """The sharding library: fsdp, zero, or others."""
        return next((name for name in ("fsdp", "zero") if self.strategy.sharding.startswith(name)), "others")

    @property
    def compiles(self) -> bool:
        """Whether torch.compile's processes work for a rank; torchao compiles its AdamW with 8-bit moments."""
        shape, eight_bits = self.shape, self.strategy.moment_bytes < 2 * self.strategy.weight_bytes
        kernels = shape.get("attention") == "flex" or shape.get("loss") == "chunked"
        return bool(shape.get("compile")) or kernels or eight_bits

    @property
    def rows_per_step(self) -> int:
        """Rows of all ranks in an optimizer step."""
        if self.layout:
            return self.layout.dp * self.layout.micro_batches
        return self.shape["batch_size"] * self.strategy.accumulation * self.strategy.world_size

    @property
    def micro_batches(self) -> str:
        """Rows of a micro-batch x how many are added up."""
        added = self.layout.micro_batches if self.layout else self.strategy.accumulation
        return f"{self.shape['batch_size']} x {added}"

    @property
    def saves(self) -> int:
        """Checkpoints, and the final model."""
        if self.save == "no":
            return 0
        named = self.steps // self.save_steps if self.save == "steps" and self.save_steps else 0
        return 1 + (self.evaluations if self.save == "epoch" else named)

    @cached_property
    def key(self) -> str:
        """Equal for runs that do the same, whatever their length."""
        own = (self.nodes, self.fabric_gb_per_s, self.filled, self.attention_share, self.data_workers, self.cuda_graph)
        return json.dumps([self.shape, vars(self.strategy), own], sort_keys=True)
