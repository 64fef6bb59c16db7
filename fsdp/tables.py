"""Tables 10 to 12: FSDP's strategies, and how they scale."""

from tools.logs.run import NoneOf
from tools.tables.table import Asked, Table, count, figure, of_rows, runs, strategy

BATCHES = {", 4 x 4": runs(batch_size=4, grad_acc=4), ", 16 x 1": runs(batch_size=16, grad_acc=1)}
# Table 10b's 16 examples per GPU and step are in no other table.
OTHER_BATCHES = runs(examples_per_gpu_step=NoneOf([16]))


def gap(label: str, column: str) -> Asked:
    """`Peak allocated, 4 x 4 (MiB)` is that of four micro-batches of four examples."""
    sizes = next((sizes for sizes in BATCHES if sizes in column), "")
    return figure(column.replace(sizes, "")), strategy(label) | BATCHES.get(sizes, {})


TABLES = {
    "10": Table(of_rows(strategy), OTHER_BATCHES | runs(nodes=1, world_size=4)),
    "10b": Table(gap, runs(nodes=1, world_size=4, precision="fp16")),
    "11": Table(of_rows(count), OTHER_BATCHES | runs(config="full_shard", nodes=1)),
    "12": Table(of_rows(count), OTHER_BATCHES | runs(config="full_shard", gpus_per_node=1)),
}
PREDICTIONS = {
    "1": ["10b | DDP; FULL_SHARD | States (MiB)"],
    "2": ["10b | DDP; FULL_SHARD | Peak allocated, 4 x 4 (MiB)"],
    "3": ["10b | FULL_SHARD | Of DDP, 4 x 4 (%)"],
    "4": ["10b | FULL_SHARD | Of DDP, 16 x 1 (%)"],
    "5": ["10 | FULL_SHARD; SHARD_GRAD_OP | Samples/s", "10 | FULL_SHARD; SHARD_GRAD_OP | Peak GPU Memory (MiB)"],
    "6": ["12 | 2 nodes | Samples/s Scale Factor"],
}
