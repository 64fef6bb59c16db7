"""Tables 13 to 16: a model of one's own on one GPU, on several, and made larger with their number."""

from tools.logs.run import Where
from tools.tables.table import Table, count, of_row, of_rows, runs

RULES = {"Published rule": runs(config="published"), "Constant work": runs(config="constant")}
ONE_SIZE = runs(config=None)


def one_node(setup: str) -> Where:
    return count(setup.removeprefix("Single node, "))


def by_rule(rule: str, gpus: str) -> Where:
    return RULES[rule] | count(gpus)


TABLES = {
    "13": Table(of_row, ONE_SIZE | runs(world_size=1, use_fsdp=False)),
    "14": Table(of_rows(one_node), ONE_SIZE | runs(nodes=1, use_fsdp=True)),
    "15": Table(of_rows(count), ONE_SIZE | runs(gpus_per_node=1, use_fsdp=True)),
    "16": Table(of_rows(by_rule), label_columns=2),
}
FOUR_GPUS = "Published rule; Constant work | 4 GPUs"
PREDICTIONS = {
    "1": [f"16 | {FOUR_GPUS} | FLOPs per GPU per Step (TFLOP)"],
    "2": [f"16 | {FOUR_GPUS} | Samples/s"],
    "3": [f"16 | {FOUR_GPUS} | Efficiency (%)"],
    "4": ["14 | Single node, 1 GPU; Single node, 2 GPUs | GPU Memory at step end (GB)"],
    "6": ["16 | Published rule | 2 GPUs; 16 GPUs | Train Runtime (s)"],
}
