"""Tables 5 to 8: DeepSpeed on several GPUs and nodes, BLOOM-1b7."""

from tools.tables.table import Asked, Table, figure, gpus, nodes, runs, zero

MODEL = runs(model="bloom-1b7")
TWO_GPUS = MODEL | runs(nodes=1, world_size=2)
TRAINING = ("Train Loss (mean)", "Eval Loss (final)", "Evaluation samples/s")
GPU_MEMORY = ("Peak GPU Memory (MiB)", "Mean GPU Memory (MiB)")
CPU_MEMORY = ("Peak CPU Memory, RSS (MiB)", "Mean CPU Memory, RSS (MiB)")


def by_gpus(metric: str, column: str) -> Asked:
    return figure(metric), gpus(column)


def by_stage(metric: str, column: str) -> Asked:
    return figure(metric), zero(column)


def by_nodes(metric: str, column: str) -> Asked:
    return figure(metric), nodes(column)


def trade_off(stage: str, column: str) -> Asked:
    """A column is of the stage without offload, of it with offload, or a comparison of both."""
    if ", offload" in column:
        return figure(column.replace(", offload", "")), zero(f"{stage} + offload")
    return figure(column.replace(", no offload", "")), zero(stage)


TABLES = [
    Table(
        "5",
        "Weak scaling, data parallel without ZeRO",
        "BLOOM-1b7, stage 0, 10,000 examples per GPU | 2 GPUs | 4 GPUs | 6 GPUs | 8 GPUs",
        ["Train Runtime (s)", "Steps/sec", "Samples/s", *TRAINING, *GPU_MEMORY, "States (MiB)"],
        by_gpus,
        MODEL | runs(config="zero0", nodes=1, examples_per_gpu=10_000),
    ),
    Table(
        "6",
        "ZeRO stages on 2 GPUs",
        "BLOOM-1b7 | Stage 1 | Stage 1 + offload | Stage 2 | Stage 2 + offload | Stage 3 | Stage 3 + offload",
        [
            *("Train Runtime (s)", "Steps/sec", "Samples/s", *TRAINING),
            *(*GPU_MEMORY, "Peak allocated (MiB)", *CPU_MEMORY, "States (MiB)"),
        ],
        by_stage,
        TWO_GPUS,
    ),
    Table(
        "7",
        "Offload trade-off",
        "2 GPUs | Peak GPU Memory, no offload (MiB) | Peak GPU Memory, offload (MiB) | Mem Savings (%) | "
        "Train Runtime, no offload (s) | Train Runtime, offload (s) | Runtime change (%)",
        ["Stage 1", "Stage 2", "Stage 3"],
        trade_off,
        TWO_GPUS,
    ),
    Table(
        "8",
        "Weak scaling across nodes",
        "BLOOM-1b7, stage 0 | 2 nodes | 4 nodes | 8 nodes",
        ["Samples/s", "Train Loss (mean)", *GPU_MEMORY],
        by_nodes,
        MODEL | runs(config="zero0"),
    ),
]
PREDICTIONS = {
    "1": ["5 | Samples/s; Peak GPU Memory (MiB) | 2 GPUs; 4 GPUs"],
    "2": ["5 | Peak GPU Memory (MiB) | 2 GPUs", "6 | Peak GPU Memory (MiB); Samples/s | Stage 2; Stage 3"],
    "3": ["8 | Samples/s | 2 nodes"],
}
