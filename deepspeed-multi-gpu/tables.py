"""Tables 5 to 8: DeepSpeed on several GPUs and nodes, BLOOM-1b7."""

from tools.tables.table import Asked, Table, count, figure, runs, strategy

MODEL = runs(model="bloom-1b7")
TWO_GPUS = MODEL | runs(nodes=1, world_size=2)


def scaling(metric: str, column: str) -> Asked:
    return figure(metric), count(column)


def by_stage(metric: str, column: str) -> Asked:
    return figure(metric), strategy(column)


def trade_off(stage: str, column: str) -> Asked:
    """A column is of the stage without offload, of it with offload, or a comparison of both."""
    if ", offload" in column:
        return figure(column.replace(", offload", "")), strategy(f"{stage} + offload")
    return figure(column.replace(", no offload", "")), strategy(stage)


TABLES = {
    "5": Table(scaling, MODEL | runs(config="zero0", nodes=1, examples_per_gpu=10_000)),
    "5b": Table(by_stage, TWO_GPUS),
    "6": Table(by_stage, TWO_GPUS),
    "7": Table(trade_off, TWO_GPUS),
    "8": Table(scaling, MODEL | runs(config="zero0")),
}
STAGES = "; ".join(f"Stage {stage}" for stage in range(4))
PREDICTIONS = {
    "1": [f"5b | States (MiB) | {STAGES}"],
    "2": [f"5b | Peak allocated (MiB) | {STAGES}"],
    "3": [f"5b | Step time (ms) | {STAGES}"],
    "4": ["8 | Samples/s | 2 nodes"],
}
