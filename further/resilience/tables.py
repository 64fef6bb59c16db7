"""Tables 22 to 22c: what goes wrong, and what a save costs."""

from tools.logs.run import Where
from tools.tables.table import Table, of_rows, runs, strategy

FAULTS = {
    "none": "none",
    "rank killed": "rank_killed",
    "preemption": "preemption",
    "time limit": "time_limit",
    "node without power": "node_off",
    "scancel": "cancelled",
    "disk full, checkpoint": "disk_full",
    "disk full, log": "log_disk_full",
    "checkpoint truncated": "checkpoint_truncated",
    "shard missing": "shard_missing",
    "logger killed": "logger_killed",
    "port taken": "port_taken",
    "two jobs on a node": "two_jobs",
    "code edited while queued": "code_edited",
}
STATES = {"gathered": "full_shard", "sharded": "full_shard_sharded_state"}


def fault(label: str) -> Where:
    return runs(fault=FAULTS[label])


def strategy_and_fault(label: str, what: str) -> Where:
    return strategy(label) | fault(what)


def save(label: str) -> Where:
    """`llama-3.2-1b, gathered, 2`: the model, how its states are written, the number of GPUs."""
    model, states, gpus = label.split(", ")
    return runs(config=STATES[states], model=model, world_size=int(gpus))


TABLES = {
    "22": Table(of_rows(fault), runs(config="ddp")),
    "22b": Table(of_rows(strategy_and_fault), runs(model="bloom-560m", nodes=1, world_size=2), label_columns=2),
    "22c": Table(of_rows(save), runs(fault="none", nodes=1)),
}
PREDICTIONS = {"1": ["22 | rank killed | Steps lost"], "2": ["22 | preemption | Steps lost"]}
