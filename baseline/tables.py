"""Tables 1 to 2b: a run of the baseline; Table 1b: of a model that learns."""

from tools.logs.run import NoneOf
from tools.tables.table import Asked, Table, figure, runs


def of_row(metric: str, _: str) -> Asked:
    return figure(metric), runs()


def of_column(_: str, column: str) -> Asked:
    return figure(column), runs()


TABLES = [
    Table(
        "1",
        "Training and evaluation summary",
        "Metric | Value",
        [
            *("Train Loss (mean)", "Eval Loss (Epoch 1)", "Eval Loss (Epoch 2)", "Eval Loss (Epoch 3)"),
            *("Trainer's samples/s", "Samples/s", "Evaluation samples/s", "Steps per Epoch"),
            *("Peak allocated (MiB)", "GPU Utilization (%)", "Exact Match (%)", "F1 (%)"),
        ],
        of_row,
    ),
    Table(
        "1b",
        "The same with a model that learns: SmolLM2-135M",
        "Run | Train Loss (mean) | Eval Loss (Epoch 1) | Eval Loss (Epoch 2) | Eval Loss (Epoch 3) | "
        "Exact Match (%) | Exact match, std (%) | F1 (%)",
        ["Value"],
        of_column,
        runs(model="smollm2-135m", train_examples=500, shared_gpu=NoneOf()),
    ),
    Table(
        "2",
        "GPU memory, power and energy",
        "Metric | Value",
        [
            *("Peak GPU Memory (MiB)", "Mean GPU Memory (MiB)", "Minimum GPU Memory (MiB)"),
            *("Mean GPU Power (W)", "Peak GPU Power (W)", "Energy (J)", "Real tokens per joule"),
        ],
        of_row,
    ),
    Table(
        "2b",
        "CPU memory, counted two ways",
        "Metric | Value",
        ["Peak CPU Memory, RSS (MiB)", "Peak CPU Memory, PSS (MiB)"],
        of_row,
    ),
]
PREDICTIONS = {
    "1": ["1 | Steps per Epoch | Value"],
    "2": ["1 | Peak allocated (MiB) | Value"],
    "3": ["1 | Trainer's samples/s; Samples/s | Value"],
}
