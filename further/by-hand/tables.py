"""Tables 21 to 21e: what a step communicates, and an optimizer of whole matrices."""

from tools.logs.run import NoneOf
from tools.tables.table import Asked, Table, figure, runs, zero

STRATEGIES = {
    "DDP": runs(method="ddp"),
    **{name: zero(name) for name in ("ZeRO-1", "ZeRO-2", "ZeRO-2, textbook", "ZeRO-3", "ZeRO-3, textbook")},
    "FULL_SHARD": runs(config="full_shard"),
    "SHARD_GRAD_OP": runs(config="shard_grad_op"),
    "HYBRID_SHARD": runs(config="hybrid_shard"),
}
OPTIMIZERS = {"AdamW": runs(optimizer="adamw_torch_fused"), "Muon": runs(optimizer="muon")}
WITHOUT_MUON = runs(optimizer=NoneOf(["muon"]))
HEADER = (
    "Strategy | All-reduce | All-gather | Reduce-scatter | Other collectives | Sent per rank (MiB) | Predicted (MiB) | "
    "Between two nodes (MiB) | Step time (ms)"
)


def strategy(label: str, column: str) -> Asked:
    return figure(column), STRATEGIES[label]


def with_optimizer(label: str, column: str) -> Asked:
    """`DDP, Muon`."""
    name, optimizer = label.split(", ")
    return figure(column), STRATEGIES[name] | OPTIMIZERS[optimizer]


def at_rate(label: str, column: str) -> Asked:
    """`Muon, 2e-4`."""
    optimizer, rate = label.split(", ")
    return figure(column), OPTIMIZERS[optimizer] | runs(learning_rate=float(rate))


TABLES = [
    Table(
        "21",
        "What a step communicates, 4 GPUs",
        HEADER,
        STRATEGIES,
        strategy,
        WITHOUT_MUON | runs(world_size=4, grad_acc=1),
    ),
    Table(
        "21b",
        "The same on 2 GPUs",
        HEADER,
        [name for name in STRATEGIES if name != "HYBRID_SHARD"],
        strategy,
        WITHOUT_MUON | runs(world_size=2, grad_acc=1),
    ),
    Table(
        "21c",
        "4 GPUs, four micro-batches per step",
        HEADER,
        [name for name in STRATEGIES if name not in ("ZeRO-2", "ZeRO-3")],
        strategy,
        WITHOUT_MUON | runs(world_size=4, grad_acc=4),
    ),
    Table(
        "21d",
        "An optimizer of whole matrices: what it sends and holds, 2 GPUs, custom model",
        "Strategy | All-reduce | All-gather | Sent per rank (MiB) | Predicted (MiB) | Optimizer states (MiB) | "
        "Peak allocated (MiB) | Step time (ms)",
        [f"{name}, {optimizer}" for name in ("DDP", "FULL_SHARD", "ZeRO-1", "ZeRO-2") for optimizer in OPTIMIZERS],
        with_optimizer,
        runs(model="simple-gpt", world_size=2, grad_acc=1),
    ),
    Table(
        "21e",
        "Does it learn more? SmolLM2-135M, 4,000 questions once, 16 examples per step, DDP on 2 GPUs",
        "Optimizer, learning rate | Optimizer steps | Train Loss (mean) | Train loss (last tenth)",
        [f"{optimizer}, {rate}" for optimizer in OPTIMIZERS for rate in ("5e-5", "2e-4")],
        at_rate,
        runs(model="smollm2-135m", world_size=2),
    ),
]
PREDICTIONS = {
    "1": ["21 | DDP; FULL_SHARD | Sent per rank (MiB)", "21c | DDP; FULL_SHARD | Sent per rank (MiB)"],
    "2": ["21 | DDP; ZeRO-1; ZeRO-2 | Predicted (MiB)"],
    "3": ["21 | FULL_SHARD; HYBRID_SHARD | Between two nodes (MiB)"],
}
