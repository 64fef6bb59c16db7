"""Tables 22 to 22c: what goes wrong, and what a save costs."""

from tools.tables.table import Asked, Table, figure, runs, zero

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
STATES = {"gathered": "full_shard", "sharded": "full_shard_sharded_state", "asynchronous": "full_shard_async"}
STRATEGIES = {
    "DDP": runs(method="ddp"),
    "ZeRO-2": zero("ZeRO-2"),
    "FULL_SHARD": runs(config="full_shard"),
    "asynchronous, 2": runs(config=STATES["asynchronous"], world_size=2),
}


def fault(label: str, column: str) -> Asked:
    return figure(column), runs(fault=FAULTS[label])


def strategy_and_fault(strategy: str, label: str, column: str) -> Asked:
    return figure(column), STRATEGIES[strategy] | runs(fault=FAULTS[label])


def save(label: str, column: str) -> Asked:
    """`llama-3.2-1b, gathered, 2`: the model, how its states are written, the number of GPUs."""
    model, states, gpus = label.split(", ")
    return figure(column), runs(config=STATES[states], model=model, world_size=int(gpus))


TABLES = [
    Table(
        "22",
        "What goes wrong, DDP",
        "Fault | State recorded | Steps lost | Seconds lost | Resumed from step | Loss equal | Largest loss difference",
        FAULTS,
        fault,
        runs(config="ddp"),
    ),
    Table(
        "22b",
        "DDP, ZeRO and FSDP on 2 GPUs, BLOOM-560m",
        "Strategy | Fault | State recorded | Steps lost | Seconds lost | Resumed from step | Largest loss difference | "
        "Checkpoint time (s) | Checkpoint size (MiB)",
        [
            *(("DDP", label) for label in ("none", "rank killed", "preemption", "checkpoint truncated")),
            *(("ZeRO-2", label) for label in ("none", "rank killed", "preemption")),
            *(("FULL_SHARD", label) for label in ("none", "rank killed", "preemption")),
            *(("asynchronous, 2", label) for label in ("none", "rank killed")),
        ],
        strategy_and_fault,
        runs(model="bloom-560m", nodes=1, world_size=2),
    ),
    Table(
        "22c",
        "What a save costs: the rows say model, states, number of GPUs",
        "States | Checkpoint size (MiB) | Stall per save (s) | Stall, last save (s) | Until on disk (s) | Samples/s",
        [
            *(f"llama-3.2-1b, {states}, {gpus}" for gpus in (2, 1) for states in STATES),
            *(f"llama-3.1-8b, {states}, 2" for states in STATES),
        ],
        save,
        runs(fault="none", nodes=1),
    ),
]
PREDICTIONS = {"1": ["22 | rank killed | Steps lost"], "2": ["22 | preemption | Steps lost"]}
