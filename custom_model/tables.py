"""Tables 13 to 16: a model of one's own on one GPU, on several, and made larger with their number."""

from tools.tables.table import Asked, Table, figure, gpus, nodes, runs

RULES = {"Published rule": runs(config="published"), "Constant work": runs(config="constant")}
ONE_SIZE = runs(config=None)
SPEED = "Trainer's samples/s | Samples/s | Mean GPU Memory (GB)"
REST = "GPU Memory at step end (GB) | GPU Utilization (%) | Train Loss (mean) | Train Runtime (s)"


def of_row(metric: str, _: str) -> Asked:
    return figure(metric), runs()


def one_node(setup: str, column: str) -> Asked:
    return figure(column), runs(nodes=1) | gpus(setup.removeprefix("Single node, "))


def by_nodes(setup: str, column: str) -> Asked:
    return figure(column), nodes(setup)


def by_rule(rule: str, count: str, column: str) -> Asked:
    return figure(column), RULES[rule] | gpus(count)


TABLES = [
    Table(
        "13",
        "Single node",
        "Metric | Value",
        [
            *("Train Loss (mean)", "Eval Loss (Epoch 1)", "Eval Loss (Epoch 2)", "Eval Loss (Epoch 3)"),
            *("Trainer's samples/s", "Samples/s", "Evaluation samples/s", "Steps per Epoch"),
            *("Peak allocated (MiB)", "GPU Utilization (%)", "Exact Match (%)", "F1 (%)"),
        ],
        of_row,
        ONE_SIZE | runs(world_size=1, use_fsdp=False),
    ),
    Table(
        "14",
        "Multi-GPU, one node",
        f"Setup | Total GPUs | {SPEED} | {REST}",
        ["Single node, 1 GPU", "Single node, 2 GPUs", "Single node, 4 GPUs", "Single node, 8 GPUs"],
        one_node,
        ONE_SIZE | runs(nodes=1, use_fsdp=True),
    ),
    Table(
        "15",
        "Multi-node, one GPU per node",
        f"Setup | Total GPUs | AllReduce BW (GB/s) | {SPEED} | {REST}",
        ["1 node", "2 nodes", "4 nodes", "8 nodes"],
        by_nodes,
        ONE_SIZE | runs(gpus_per_node=1, use_fsdp=True),
    ),
    Table(
        "16",
        "Weak scaling by two rules",
        "Rule | GPUs | Num Layers | Per-GPU Batch | Total Params (M) | FLOPs per GPU per Step (TFLOP) | Samples/s | "
        f"{REST} | Efficiency (%)",
        [(rule, f"{count} GPUs") for rule in RULES for count in (2, 4, 8, 16)],
        by_rule,
    ),
]
PREDICTIONS = {
    "1": ["14 | Single node, 1 GPU; Single node, 2 GPUs | GPU Memory at step end (GB)"],
    "3": ["16 | Published rule / 2 GPUs; Published rule / 16 GPUs | Train Runtime (s)"],
}
