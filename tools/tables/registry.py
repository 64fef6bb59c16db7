"""What the labels of the READMEs' tables mean. The blank tables are the table definitions; this is their dictionary.

A row's or column's label names a metric, or selects runs, or both ("GPU Mem (Offload)"). A cell is its table's defaults
merged with its row's and its column's meaning, and must end with exactly one metric. A new table is more entries here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from tools.logs.run import Not
from tools.tables.ladder import FLOAT8, LADDER, PEERS, STREAM, TEXTBOOK, TOP, VARIANTS, label
from tools.tables.metrics import METRICS, Where


@dataclass(frozen=True)
class Meaning:
    """Attributes: metric: a key of METRICS or None; where: conditions on the run (see Run.facts; stage, offload).

    std: the figure's standard deviation over the repeats, in place of its median.
    """

    metric: str | None = None
    where: Where = field(default_factory=dict)
    std: bool = False


@dataclass(frozen=True)
class TableDefaults:
    """Attributes: exercise: the folders whose runs fill the table; where: conditions on all of the table's runs."""

    exercise: str | tuple[str, ...]
    where: Where = field(default_factory=dict)

    @property
    def exercises(self) -> tuple[str, ...]:
        return (self.exercise,) if isinstance(self.exercise, str) else self.exercise


_560M = {"model": "bloom-560m", "train_examples": 500}
_1B7 = {"model": "bloom-1b7"}
_LADDER = {"model": "bloom-560m", "world_size": 1}
_SPEED = {"nodes": 1, "learning": False, "max_steps": Not(300)}
_SHARDED = {"world_size": 4, "method": "fsdp2"}
_SHARDED_ON_2 = _SHARDED | {"world_size": 2}
# Variants of a method's communication, which are no runs of the method's own row.
_TUNED = (
    *("ddp_large_buckets", "ddp_bucket_view", "ddp_static_graph", "ddp_bf16_gradients", "ddp_fp16_gradients"),
    *("ddp_whole_blocks", "ddp_tuned"),
    *("zero2_small_buckets", "zero2_no_overlap", "zero2_not_contiguous", "zero2_fp32_gradients"),
)
_SCALING = {"rung": TOP, "nodes": 1, "config": Not(*_TUNED)}
_METHODS = ("fsdp", "deepspeed-multi-gpu", "speed-ladder")
# Of Table 22: the rows, and the FAULT of their runs.
FAULTS = {
    **{"none": "none", "rank killed": "rank_killed", "preemption": "preemption", "time limit": "time_limit"},
    **{"node without power": "node_off", "scancel": "cancelled", "disk full, checkpoint": "disk_full"},
    **{"disk full, log": "log_disk_full", "checkpoint truncated": "checkpoint_truncated"},
    **{"shard missing": "shard_missing", "logger killed": "logger_killed", "port taken": "port_taken"},
    **{"two jobs on a node": "two_jobs", "code edited while queued": "code_edited"},
}
TABLES: dict[str, TableDefaults] = {
    "1": TableDefaults("baseline"),
    "2": TableDefaults("baseline"),
    "2b": TableDefaults("baseline"),
    # Not of the large micro-batches of Tables 4d and 9b; a smaller GPU may ask for another than the exercise's.
    "3": TableDefaults("deepspeed-single-gpu", _560M | {"batch_size": Not(16)}),
    "4": TableDefaults("deepspeed-single-gpu", {"batch_size": Not(16, 24)}),
    "4b": TableDefaults("deepspeed-single-gpu", _560M),
    "4c": TableDefaults("deepspeed-single-gpu", _560M | {"timed": True}),
    "4d": TableDefaults("deepspeed-single-gpu", _560M),
    "5": TableDefaults("deepspeed-multi-gpu", _1B7 | {"config": "zero0", "nodes": 1, "examples_per_gpu": 10_000}),
    "6": TableDefaults("deepspeed-multi-gpu", _1B7 | {"nodes": 1, "world_size": 2}),
    "7": TableDefaults("deepspeed-multi-gpu", _1B7 | {"nodes": 1, "world_size": 2}),
    "8": TableDefaults("deepspeed-multi-gpu", _1B7 | {"config": "zero0"}),
    "9": TableDefaults(("deepspeed-zero3-offload", "deepspeed-multi-gpu", "fsdp")),
    "9b": TableDefaults("deepspeed-single-gpu", {"model": "bloom-3b", "batch_size": 24}),
    # Table 10b's labels ask for batches of 16 examples per GPU and step; these runs are no other table's.
    "10": TableDefaults("fsdp", {"nodes": 1, "world_size": 4, "examples_per_gpu_step": Not(16)}),
    "10b": TableDefaults("fsdp", {"nodes": 1, "world_size": 4, "precision": "fp16"}),
    "11": TableDefaults("fsdp", {"config": "full_shard", "nodes": 1, "examples_per_gpu_step": Not(16)}),
    "12": TableDefaults("fsdp", {"config": "full_shard", "gpus_per_node": 1, "examples_per_gpu_step": Not(16)}),
    "13": TableDefaults("custom_model", {"config": None, "world_size": 1, "use_fsdp": False}),
    "14": TableDefaults("custom_model", {"config": None, "nodes": 1, "use_fsdp": True}),
    "15": TableDefaults("custom_model", {"config": None, "gpus_per_node": 1, "use_fsdp": True}),
    "16": TableDefaults("custom_model"),
    "17": TableDefaults("benchmark", {"nodes": 1}),
    "18": TableDefaults("speed-ladder", _LADDER | {"learning": False}),
    "18b": TableDefaults("speed-ladder", _LADDER | {"learning": False}),
    "18c": TableDefaults("speed-ladder", _LADDER | {"learning": False}),
    "18d": TableDefaults("speed-ladder", _LADDER | {"learning": True}),
    "18e": TableDefaults("speed-ladder", _LADDER | {"learning": False, "batch_size": 64}),
    "18f": TableDefaults("speed-ladder", _LADDER | {"learning": False, "batch_size": 64}),
    "19": TableDefaults(_METHODS, _1B7 | _SCALING | {"world_size": 4}),
    "19b": TableDefaults(_METHODS, _1B7 | _SCALING | {"world_size": 2}),
    "19c": TableDefaults(_METHODS, _1B7 | _SCALING | {"world_size": 4, "batch_size": 64}),
    "19d": TableDefaults(_METHODS, _1B7 | _SCALING | {"world_size": 2, "batch_size": 64}),
    "20": TableDefaults(_METHODS, _SCALING | {"model": "bloom-7b1", "world_size": 4}),
    "21": TableDefaults("by-hand", {"world_size": 4, "grad_acc": 1}),
    "21b": TableDefaults("by-hand", {"world_size": 2, "grad_acc": 1}),
    "21c": TableDefaults("by-hand", {"world_size": 4, "grad_acc": 4}),
    "22": TableDefaults("resilience", {"config": "ddp"}),
    "22b": TableDefaults("resilience", {"nodes": 1, "world_size": 2}),
    # Rows of 512 tokens, or of a published figure's length; the label says how long the others are.
    "23": TableDefaults("speed-ladder", _SPEED | {"world_size": 1, "max_length": 512}),
    "23b": TableDefaults("speed-ladder", _SPEED | _SHARDED | {"max_length": 512}),
    "23c": TableDefaults("speed-ladder", _SPEED | _SHARDED),
    "23d": TableDefaults("speed-ladder", _SPEED | _SHARDED_ON_2 | {"max_length": 512}),
    "23e": TableDefaults("speed-ladder", _SPEED | _SHARDED_ON_2),
    "23f": TableDefaults("speed-ladder", _SPEED | {"world_size": 1}),
    "24": TableDefaults("speed-ladder", _SPEED | _SHARDED | {"max_length": 512}),
    "24b": TableDefaults("speed-ladder", {"world_size": 1, "max_steps": 300}),
    "24c": TableDefaults("speed-ladder", _SPEED | _SHARDED_ON_2 | {"max_length": 512}),
}

# What tiny.env changes: no table about tiny runs asks for it.
SIZES = {
    *("model", "train_examples", "examples_per_gpu", "batch_size", "grad_acc", "examples_per_gpu_step", "max_length"),
    *("precision", "epochs"),
}


def normalised(label: str) -> str:
    """A label as it is looked up: markup, case and spacing do not change its meaning."""
    return " ".join(re.sub(r"[*`]|(?<!\w)_|_(?!\w)", "", label).split()).casefold()


# Labels as `normalised` gives them: lower case, without markup, single spaces. Those that only name a metric are with
# its definition, in tools/logs/figures.csv.
_LABELS: dict[str, Meaning] = {
    **{normalised(name): Meaning(metric) for metric, one in METRICS.items() for name in one.labels},
    "value": Meaning(),
    **{label: Meaning(where={"fault": fault}) for label, fault in FAULTS.items()},
    "tiny": Meaning(),
    "gpu mem (no offload)": Meaning("peak_gpu", {"offload": False}),
    "gpu mem (offload)": Meaning("peak_gpu", {"offload": True}),
    "train runtime (no offload)": Meaning("train_runtime", {"offload": False}),
    "train runtime (offload)": Meaning("train_runtime", {"offload": True}),
    "pin_memory true": Meaning(where={"config": "zero2_offload"}),
    "pin_memory false": Meaning(where={"config": "zero2_offload_unpinned"}),
    **{method: Meaning(where={"method": method}) for method in ("ddp", "fsdp1", "fsdp2")},
    "deepspeed zero-3": Meaning(where={"method": "zero3"}),
    "cpu offload": Meaning("cpu_offload", {"cpu_offload": True}),
    "no model-code change": Meaning("unchanged_model", {"unchanged_model": True}),
    "works with hf trainer": Meaning("hf_trainer", {"hf_trainer": True}),
    "published rule": Meaning(where={"config": "published"}),
    "constant work": Meaning(where={"config": "constant"}),
    "step time, std (ms)": Meaning("step_time", std=True),
    "tokens/s, std": Meaning("median_tokens_per_second", std=True),
    "stage 3 + offload, tuned": Meaning(where={"config": "zero3_offload_tuned"}),
    **{
        f"tuning/{name}": Meaning(where={"config": name})
        for name in ("params_on_gpu", "leaf", "gpu_leaf", "gpu_leaf_small", "superoffload", "zenflow", *_TUNED)
    },
    **{
        name: Meaning(where={"config": name.replace(" + ", "_")})
        for sharding in ("full_shard", "shard_grad_op", "hybrid_shard")
        for name in (sharding, f"{sharding} + offload")
    },
    "full_shard + checkpointing": Meaning(where={"config": "full_shard_checkpointing"}),
    # Liger's loss on a rung that has ours is a row of its own.
    **{label(rung): Meaning(where={"rung": rung, "loss": Not("liger")}) for rung in LADDER},
    **{label(rung): Meaning(where={"rung": rung}) for rung in (*VARIANTS, *PEERS)},
    f"{label(STREAM)}, liger": Meaning(where={"rung": STREAM, "loss": "liger", "loss_chunk": 16384}),
    "one gpu": Meaning(where={"exercise": "speed-ladder", "world_size": 1}),
    **{text: Meaning() for text in ("published, per gpu", "examples apart", "logits computed")},
    "zero-2, textbook": Meaning(where={"config": "zero2_textbook"}),
    "zero-3, textbook": Meaning(where={"config": "zero3_textbook"}),
}


_PRECISION = "(?P<precision>fp32|fp16|bf16)"
_BATCH = r"(?P<batch_size>\d+) x (?P<grad_acc>\d+)"

_ROW = r"(?:_bs(?P<batch_size>\d+)_sl(?P<max_length>\d+))?"
_LENGTH = r"(?:, (?P<max_length>[\d,]+) tokens)?"


def _rungs(*names: str) -> str:
    return f"(?P<rung>{'|'.join(map(label, names))})"


# Labels with sizes in them: what the groups of the pattern match are conditions, beside the meaning given here.
_PATTERNS: dict[str, Meaning] = {
    # The benchmark's names: ZeRO stage, precision, GPUs, micro-batch, length of a row.
    rf"zs(?P<config>[0-3])_{_PRECISION}_gpus(?P<world_size>\d+){_ROW}": Meaning(),
    r"(?:stage |zero-)(?P<stage>[0-3])(?P<offload> \+ offload)?": Meaning(),
    rf"{_BATCH}, {_PRECISION}": Meaning(),
    r"(?P<model>bloom-(?:560m|1b1|1b7|3b|7b1))(?:, (?P<train_examples>[\d,]+)(?: examples)?)?": Meaning(),
    rf"{_rungs(*LADDER)}, (?P<epochs>\d+) epochs?": Meaning(),
    rf"{_rungs(*LADDER, *VARIANTS, *PEERS)}, (?P<batch_size>\d+) rows": Meaning(),
    rf"(?:(?P<model>[\w.-]+), )?{_rungs(TEXTBOOK, TOP, FLOAT8)}{_LENGTH}(?:, seed (?P<seed>\d+))?": Meaning(),
    rf"samples/s, {_BATCH}": Meaning("samples_per_second"),
    rf"of ddp, {_BATCH} \(%\)": Meaning("share_of_ddp"),
    rf"peak allocated, {_BATCH} \(mib\)": Meaning("peak_allocated"),
    r"single node, (?P<world_size>\d+) gpus?": Meaning(where={"nodes": 1}),
    r"(?P<world_size>\d+) gpus?": Meaning(),
    r"(?P<nodes>\d+) nodes?": Meaning(),
}
_COMPILED = {re.compile(pattern): meaning for pattern, meaning in _PATTERNS.items()}
_RUNG_OF = {label(rung): rung for rung in (*LADDER, *VARIANTS, *PEERS)}
# Of the groups that are not simply a number or a text.
_READ: dict[str, Callable[[str], Any]] = {"config": "zero{}".format, "rung": _RUNG_OF.get, "offload": bool}


def _condition(name: str, text: str) -> Any:
    digits = text.replace(",", "")
    return _READ[name](text) if name in _READ else int(digits) if digits.isdigit() else text


def meaning(label: str) -> Meaning | None:
    """What a label stands for, or None if it stands for nothing."""
    name = normalised(label)
    if name in _LABELS:
        return _LABELS[name]
    for pattern, found in _COMPILED.items():
        if match := pattern.fullmatch(name):
            groups = {key: _condition(key, text) for key, text in match.groupdict().items() if text}
            return replace(found, where=found.where | groups)
    return None


def run_conditions(where: Where) -> Where:
    """Conditions on a run's facts: a stage and whether there is offload are together the name of a configuration."""
    where = dict(where)
    stage, offload = where.pop("stage", None), where.pop("offload", False)
    return where if stage is None else where | {"config": f"zero{stage}{'_offload' if offload else ''}"}
