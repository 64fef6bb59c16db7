"""Tables 21 to 21f: what a step communicates, an optimizer of whole matrices, and memory in a step's phases."""

from tools.logs.run import NoneOf, Where
from tools.tables.table import Table, of_rows, runs, strategy

OPTIMIZERS = {"AdamW": runs(optimizer="adamw_torch_fused"), "Muon": runs(optimizer="muon")}
PREDICTED = [f"{phase}, predicted (MiB)" for phase in ("Loaded", "Forward", "Backward", "Update")]
WITHOUT_MUON = runs(optimizer=NoneOf(["muon"]))


def with_optimizer(label: str) -> Where:
    """`DDP, Muon`."""
    name, optimizer = label.split(", ")
    return strategy(name) | OPTIMIZERS[optimizer]


def at_rate(label: str) -> Where:
    """`Muon, 2e-4`."""
    optimizer, rate = label.split(", ")
    return OPTIMIZERS[optimizer] | runs(learning_rate=float(rate))


TABLES = {
    "21": Table(of_rows(strategy), WITHOUT_MUON | runs(world_size=4, grad_acc=1)),
    "21b": Table(of_rows(strategy), WITHOUT_MUON | runs(world_size=2, grad_acc=1)),
    "21c": Table(of_rows(strategy), WITHOUT_MUON | runs(world_size=4, grad_acc=4)),
    "21d": Table(of_rows(with_optimizer), runs(model="simple-gpt", world_size=2, grad_acc=1)),
    "21e": Table(of_rows(at_rate), runs(model="smollm2-135m", world_size=2)),
    "21f": Table(of_rows(strategy, PREDICTED), runs(model="llama-3.2-1b", world_size=2), compares=["model"]),
}
PREDICTIONS = {
    "1": ["21 | DDP; FULL_SHARD | Sent per rank (MiB)", "21c | DDP; FULL_SHARD | Sent per rank (MiB)"],
    "2": ["21 | DDP; ZeRO-1; ZeRO-2 | Predicted (MiB)"],
    "3": ["21 | FULL_SHARD; HYBRID_SHARD | Between two nodes (MiB)"],
}
