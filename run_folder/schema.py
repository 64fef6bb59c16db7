"""The types of run.json, summary.json and steps.csv; logs/README.md says in words what each value means.

A key may be absent or null: the job ended before it was known. A key that is there has the type given here. Keys that
are not listed are allowed and not looked at, so that a newer job can be read by older tools.
"""

from __future__ import annotations

from functools import cache
from typing import Any, TypedDict, get_args, get_origin, get_type_hints, is_typeddict

from run_folder.settings import record_types

# Version 1: no key `version`, and steps.csv ends with `epoch`. A reader that knows version n reads all before it.
VERSION = 2
STATES = ("running", "completed", "oom", "timeout", "preempted", "cancelled", "failed")


class ModelRecord(TypedDict, total=False):
    """run.json, `model`."""

    name: str
    parameters: int
    block_parameters: int
    embedding_parameters: int
    layers: int
    hidden_size: int
    attention_size: int
    untied_embedding: bool
    flops_per_token: int


class ShardingRecord(TypedDict, total=False):
    """run.json, `sharding`: what was seen while the run trained."""

    method: str
    parameters: bool
    gradients: bool
    optimizer: bool
    cpu_offload: bool
    own_modules: list[str]
    reshard_after_forward: bool
    replicas: int


# Those that every exercise has, and those of single exercises that tables select by or show.
SettingsRecord = TypedDict(
    "SettingsRecord",
    record_types()
    | {"rung": str, "packing": bool, "loss": str, "loss_chunk": int, "use_fsdp": bool, "fault": str}
    | {"num_layers": int, "hidden_size": int},
    total=False,
)


class AttemptRecord(TypedDict, total=False):
    """run.json, one of `attempts`: what ended before the run went on."""

    state: str
    cause: str
    reason: str
    exit_code: int
    start_time: str
    end_time: str
    last_step: int
    last_step_s: float
    resumed_step: int
    steps_lost: int
    seconds_lost: float


class ReplayRecord(TypedDict, total=False):
    """run.json, `replay`: the run folder was written by `python -m tools replay`, not by a job."""

    of: str
    speed: float


class RunRecord(TypedDict, total=False):
    """run.json. The launcher writes the first block, the training's rank 0 the second, the launcher the third."""

    version: int
    exercise: str
    experiment: str
    config: str
    command: list[str]
    host: str
    nodes: int
    gpus_per_node: int
    slurm_job_id: str
    git_commit: str
    git_dirty: bool
    git_diff: str
    launcher: str
    submission: str
    start_time: str
    oom_kills_before: int
    state: str

    settings: SettingsRecord
    world_size: int
    model: ModelRecord
    flops_per_gpu_per_step: int
    precision: str
    sharding: ShardingRecord
    trainer_classes: list[str]
    emulated_nodes: bool
    device: str
    gpu_names: list[str]
    cpu_threads: int
    train_examples: int
    eval_examples: int
    steps_per_epoch: int
    versions: dict

    exit_code: int
    cause: str
    reason: str
    end_time: str

    attempt_start_time: str
    attempts: list[AttemptRecord]

    note: str  # by hand, of a record that was corrected

    replay: ReplayRecord  # by `python -m tools replay`


REQUIRED = ("exercise", "state", "start_time")

_SUMMARY: dict[str, Any] = {
    **dict.fromkeys(("train_runtime_s", "train_loss"), float),
    "eval_loss": list[float],
    **dict.fromkeys(("train_samples_per_second", "train_steps_per_second", "eval_samples_per_second"), float),
    **dict.fromkeys(("train/samples_per_second", "train/steps_per_second"), float),
    **dict.fromkeys(("train/tokens_per_second", "train/real_tokens_per_second"), float),
    **dict.fromkeys(("train/logit_positions_per_second", "train/median_tokens_per_second"), float),
    "warmup_steps": int,
    **dict.fromkeys(("peak_mem_alloc_mib", "peak_mem_reserved_mib"), float),
    **dict.fromkeys(("avg_mem_alloc_MB", "avg_mem_reserved_MB", "avg_mem_total_MB"), float),
    **dict.fromkeys(("avg_gpu_util_%", "std_gpu_util_%"), float),
    "checkpoints": int,
    **dict.fromkeys(("checkpoint_time_s", "checkpoint_mib", "checkpoint_time_share_%"), float),
    **dict.fromkeys(("exact_match", "f1", "train_exact_match", "train_f1"), float),
    **dict.fromkeys(("exact_match_before", "f1_before"), float),
    **dict.fromkeys(("generated_examples", "train_generated_examples"), int),
}
SummaryRecord = TypedDict("SummaryRecord", _SUMMARY, total=False)  # names that are not Python's

# Of all versions, in the file's order; version 2 added the last three.
STEPS_COLUMNS = {
    "step": int,
    "step_time_s": float,
    "tokens": int,
    "real_tokens": int,
    "loss": float,
    "epoch": float,
    "samples": int,
    "logit_positions": int,
    "peak_mem_alloc_mib": float,
}
STEPS_VERSIONS = {1: tuple(STEPS_COLUMNS)[:6], 2: tuple(STEPS_COLUMNS)}

_JSON_NAMES = {int: "a whole number", float: "a number", str: "a text", bool: "true or false", dict: "an object"}


class MistypedError(ValueError):
    """A value has another type than its key asks for."""

    def __init__(self, key: str, value: Any, expected: str):
        super().__init__(f"{key}: {value!r}, expected {expected}")
        self.found, self.expected = f"{key}: {value!r}", expected


def check(value: Any, schema: Any, key: str = "") -> None:
    """Raises MistypedError for the first value of a record that is not as `schema` (a TypedDict) says."""
    if get_origin(schema) is list:
        if type(value) is not list:
            raise MistypedError(key, value, "a list")
        for one in value:
            check(one, get_args(schema)[0], key)
    elif is_typeddict(schema):
        if type(value) is not dict:
            raise MistypedError(key, value, "an object")
        hints = _hints(schema)
        for name, entry in value.items():
            if entry is not None and name in hints:
                check(entry, hints[name], f"{key}.{name}".removeprefix("."))
    # JSON has one kind of number: 1.0 may be written as 1. One of more than 64 bits is no count of anything, and no
    # float can hold it.
    elif type(value) is int and schema in (int, float) and -(2**63) < value < 2**63:
        return
    elif type(value) is not schema or schema is int:
        raise MistypedError(key, value, _JSON_NAMES[schema])


_hints = cache(get_type_hints)
