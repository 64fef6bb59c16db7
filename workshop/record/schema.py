"""The types of run.json, summary.json and steps.csv; logs/README.md says in words what each value means.

A key may be absent or null: the job ended before it was known. Otherwise it has the type given here. Keys that are not
listed are ignored, so that older tools can read a newer job.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, is_dataclass, make_dataclass
from functools import cache
from types import UnionType
from typing import Any, get_args, get_type_hints

from workshop.record.exercises import every_exercise
from workshop.record.printable import one_line

# Version 1: no key `version`, and steps.csv ends with `epoch`. A reader that knows version n reads all before it.
VERSION = 2
STATES = ("running", "completed", "oom", "timeout", "preempted", "cancelled", "failed")
LEAST_ENERGY_S = 10  # NVML's counter moves in steps, so shorter timed parts have no figure in joules
REQUIRED = ("exercise", "state", "start_time")

Schema = dict[str, Any]  # key to type
_JSON_NAMES = {int: "a whole number", float: "a number", str: "a text", bool: "true or false", dict: "an object"}


@dataclass(frozen=True, kw_only=True)
class Model:
    """`model` of run.json."""

    name: str | None = None
    parameters: int | None = None
    trained_parameters: int | None = None
    block_parameters: int | None = None
    embedding_parameters: int | None = None
    idle_parameters: int | None = None
    layers: int | None = None
    hidden_size: int | None = None
    attention_size: int | None = None
    key_value_size: int | None = None
    untied_embedding: bool | None = None
    flops_per_token: int | None = None


@dataclass(frozen=True, kw_only=True)
class _Sharding:
    """`sharding` of run.json: what was seen while the run trained."""

    method: str | None = None
    parameters: bool | None = None
    gradients: bool | None = None
    optimizer: bool | None = None
    cpu_offload: bool | None = None
    reshard_after_forward: bool | None = None
    weights_mib: float | None = None
    gradients_mib: float | None = None
    optimizer_states_mib: float | None = None
    states_mib: float | None = None
    own_modules: list[str] | None = None
    replicas: int | None = None
    matrices: list[str] | None = None  # rows x columns of those that Muon updates


def declared_types(part: str) -> Schema:
    """Return the keys that exercises add to a part of run.json, with their types."""
    kinds = {kind.__name__: kind for kind in _JSON_NAMES}
    types = {}
    for exercise in every_exercise():
        for kind, names in exercise.record.get(part, {}).items():
            types |= dict.fromkeys(names, kinds[kind])
    return types


_added = [(name, kind | None, field(default=None)) for name, kind in declared_types("sharding").items()]
Sharding = make_dataclass("Sharding", _added, bases=(_Sharding,), frozen=True, kw_only=True)


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """An entry of `attempts` of run.json: what ended before the run was resumed."""

    state: str | None = None
    cause: str | None = None
    reason: str | None = None
    start_time: str | None = None
    end_time: str | None = None
    exit_code: int | None = None
    last_step: int | None = None
    resumed_step: int | None = None
    steps_lost: int | None = None
    last_step_s: float | None = None
    seconds_lost: float | None = None


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """run.json; None, or an empty list or object: not known."""

    # the launcher, before the training
    exercise: str = ""
    state: str = ""
    start_time: str = ""
    version: int | None = None
    experiment: str | None = None
    config: str | None = None
    command: list[str] = field(default_factory=list)
    host: str | None = None
    nodes: int | None = None
    gpus_per_node: int | None = None
    slurm_job_id: str | None = None
    launcher: str | None = None
    submission: str | None = None
    oom_kills_before: int | None = None
    git_commit: str | None = None
    git_dirty: bool | None = None
    git_diff: str | None = None
    # the training's rank 0
    settings: dict = field(default_factory=dict)  # typed by settings/settings.py
    model: Model = Model()
    sharding: Sharding = field(default_factory=Sharding)
    precision: str | None = None
    trainer_classes: list[str] = field(default_factory=list)
    device: str | None = None
    gpu_names: list[str] = field(default_factory=list)
    emulated_nodes: bool = False
    versions: dict = field(default_factory=dict)
    world_size: int | None = None
    dp_size: int | None = None
    cpu_threads: int | None = None
    flops_per_gpu_per_step: int | None = None
    train_examples: int | None = None
    eval_examples: int | None = None
    steps_per_epoch: int | None = None
    # the launcher, at the end, and after each attempt but the first
    exit_code: int | None = None
    cause: str | None = None
    reason: str | None = None
    end_time: str | None = None
    attempt_start_time: str | None = None
    attempts: list[Attempt] = field(default_factory=list)
    # by hand, of a reference run: what was corrected; whether others were on its GPU; whether a variable that no
    # setting records changed it
    note: str | None = None
    shared_gpu: bool = False
    own_environment: bool = False


SUMMARY_RECORD: Schema = {
    **dict.fromkeys(("eval_loss", "peak_mem_alloc_mib_of_ranks"), list[float]),
    **{"timed_start": str, "timed_end": str, "exact_match_by_step": dict},
    **dict.fromkeys(("warmup_steps", "checkpoints", "generated_examples", "train_generated_examples"), int),
    **dict.fromkeys(("train_runtime_s", "train_loss", "timed_s", "energy_j", "real_tokens_per_joule"), float),
    **dict.fromkeys(("train_samples_per_second", "train_steps_per_second", "eval_samples_per_second"), float),
    **dict.fromkeys(("train/samples_per_second", "train/steps_per_second"), float),
    **dict.fromkeys(("train/tokens_per_second", "train/real_tokens_per_second"), float),
    **dict.fromkeys(("train/logit_positions_per_second", "train/median_tokens_per_second"), float),
    **dict.fromkeys(("peak_mem_alloc_mib", "peak_mem_reserved_mib", "optimizer_states_mib"), float),
    **dict.fromkeys(("mem_loaded_mib", "mem_forward_mib", "mem_backward_mib", "mem_update_mib"), float),
    **dict.fromkeys(("avg_mem_alloc_MB", "avg_mem_reserved_MB", "avg_mem_total_MB"), float),
    **dict.fromkeys(("avg_gpu_util_%", "std_gpu_util_%"), float),
    **dict.fromkeys(("checkpoint_mib", "checkpoint_time_s", "checkpoint_time_share_%"), float),
    **{f"checkpoint_{part}_time_s": float for part in ("last", "disk", "write", "hash")},  # older runs
    **dict.fromkeys(("exact_match", "f1", "exact_match_before", "f1_before", "train_exact_match", "train_f1"), float),
}


@dataclass(frozen=True)
class Step:
    """A line of steps.csv. Counts are summed over all ranks; `real_tokens` has no padding."""

    step: int
    step_time_s: float
    tokens: int
    real_tokens: int
    loss: float
    epoch: float
    # since version 2
    samples: int
    logit_positions: int
    peak_mem_alloc_mib: float | None  # rank 0's, since the training or the last evaluation began; None without a GPU


STEPS_COLUMNS = tuple(column.name for column in fields(Step))


class MistypedError(ValueError):
    """A value does not have its key's type."""

    def __init__(self, key: str, value: Any, expected: str):
        super().__init__(f"{key}: {value!r}, expected {expected}")
        self.found, self.expected = f"{key}: {value!r}", expected


@cache
def types_of(record: type) -> Schema:
    """Return the keys of a record with their types; any of them may be null."""
    hints = get_type_hints(record).items()
    return {name: get_args(hint)[0] if isinstance(hint, UnionType) else hint for name, hint in hints}


def typed(value: Any, kind: Any, key: str = "") -> Any:
    """Return a JSON value as its type, an object as its dataclass; null becomes the default.

    An object with a Schema keeps its other keys, unchecked. Texts can be shown in a line of a table and on a terminal.

    Raises:
        MistypedError: names the first value that has another type.
    """
    if isinstance(kind, dict):
        return value | _entries(value, kind, key)
    if kind in _JSON_NAMES:
        return _plain(value, kind, key)
    if is_dataclass(kind):
        return kind(**_entries(value, types_of(kind), key))
    if type(value) is not list:
        raise MistypedError(key, value, "a list")
    (kind_of_entries,) = get_args(kind)
    return [typed(entry, kind_of_entries, key) for entry in value]


def _entries(value: Any, schema: Schema, key: str) -> dict[str, Any]:
    """The entries that the schema has, but for those that are null."""
    if type(value) is not dict:
        raise MistypedError(key, value, "an object")
    prefix = f"{key}." if key else ""
    values = {}
    for name, entry in value.items():
        if entry is not None and (kind := schema.get(name)):
            # Nearly all values of 10,000 runs are these.
            plain = type(entry) is kind and (
                kind is float or kind is bool or (kind is str and entry.isprintable()) or (kind is int and _fits(entry))
            )
            values[name] = entry if plain else typed(entry, kind, prefix + name)
    return values


def _fits(number: int) -> bool:
    """Whether it has at most 64 bits, as every count has."""
    return -(2**63) < number < 2**63


def _plain(value: Any, kind: type, key: str) -> Any:
    whole = type(value) is int and kind in (int, float) and _fits(value)  # JSON has one kind of number: 1.0 may be 1
    if not whole and (type(value) is not kind or kind is int):
        raise MistypedError(key, value, _JSON_NAMES[kind])
    return one_line(value) if kind is str else value
