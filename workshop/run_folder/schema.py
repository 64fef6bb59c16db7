"""The types of run.json, summary.json and steps.csv; logs/README.md says in words what each value means.

A key may be absent or null: the job ended before it was known. A key that is there has the type given here. Keys that
are not listed are allowed and not looked at, so that a newer job can be read by older tools.
"""

from __future__ import annotations

from typing import Any

from workshop.run_folder.settings import record_types

# Version 1: no key `version`, and steps.csv ends with `epoch`. A reader that knows version n reads all before it.
VERSION = 2
STATES = ("running", "completed", "oom", "timeout", "preempted", "cancelled", "failed")
LEAST_ENERGY_S = 10  # of the timed steps: NVML's counter moves in steps, so a shorter part has no figure in joules
REQUIRED = ("exercise", "state", "start_time")

Schema = dict[str, Any]  # key to type: a type, [the type of a list's entries], or the schema of an object

_MODEL: Schema = {
    "name": str,
    **dict.fromkeys(("parameters", "block_parameters", "embedding_parameters", "layers", "hidden_size"), int),
    **dict.fromkeys(("trained_parameters", "idle_parameters", "attention_size", "key_value_size"), int),
    **{"untied_embedding": bool, "flops_per_token": int},
}
# What was seen while the run trained.
_SHARDING: Schema = {
    "method": str,
    **dict.fromkeys(("parameters", "gradients", "optimizer", "cpu_offload", "reshard_after_forward"), bool),
    **dict.fromkeys(("weights_mib", "gradients_mib", "optimizer_states_mib", "states_mib"), float),
    **{"own_modules": [str], "replicas": int},
    # Of dimensions/.
    **dict.fromkeys(("tp_size", "cp_size", "sp_size", "pp_size", "rank_parameters", "stages"), int),
    **{"schedule": str, "bubble": float, "imbalance": float},
}
# Those that every exercise has, and those of single exercises that tables select by or show.
_SETTINGS: Schema = {
    **record_types(),
    **{"rung": str, "packing": bool, "loss": str, "loss_chunk": int, "use_fsdp": bool, "fault": str},
    **{"num_layers": int, "hidden_size": int, "sequence_parallel": bool, "schedule": str},
    **{"method": str, "lora_rank": int, "lora_alpha": float, "lora_dropout": float, "lora_targets": str},
}
# What ended before the run went on.
_ATTEMPT: Schema = {
    **dict.fromkeys(("state", "cause", "reason", "start_time", "end_time"), str),
    **dict.fromkeys(("exit_code", "last_step", "resumed_step", "steps_lost"), int),
    **dict.fromkeys(("last_step_s", "seconds_lost"), float),
}
RUN_RECORD: Schema = {
    # The launcher, before the training.
    **dict.fromkeys(("exercise", "experiment", "config", "host", "slurm_job_id", "launcher", "submission"), str),
    **{"version": int, "command": [str], "nodes": int, "gpus_per_node": int, "oom_kills_before": int},
    **{"git_commit": str, "git_dirty": bool, "git_diff": str, "start_time": str, "state": str},
    # The training's rank 0.
    **{"settings": _SETTINGS, "model": _MODEL, "sharding": _SHARDING, "precision": str, "trainer_classes": [str]},
    **{"device": str, "gpu_names": [str], "emulated_nodes": bool, "versions": dict},
    **dict.fromkeys(("world_size", "dp_size", "cpu_threads", "flops_per_gpu_per_step"), int),
    **dict.fromkeys(("train_examples", "eval_examples", "steps_per_epoch"), int),
    # The launcher, at the end, and after each attempt but the first.
    **{"exit_code": int, "cause": str, "reason": str, "end_time": str},
    **{"attempt_start_time": str, "attempts": [_ATTEMPT]},
    "note": str,  # by hand, of a record that was corrected
    "shared_gpu": bool,  # by hand, of a reference run beside others on its GPU
    "replay": {"of": str, "speed": float},  # `python -m tools replay` wrote the folder, not a job
}
SUMMARY_RECORD: Schema = {
    **dict.fromkeys(("train_runtime_s", "train_loss"), float),
    "eval_loss": [float],
    **dict.fromkeys(("train_samples_per_second", "train_steps_per_second", "eval_samples_per_second"), float),
    **dict.fromkeys(("train/samples_per_second", "train/steps_per_second"), float),
    **dict.fromkeys(("train/tokens_per_second", "train/real_tokens_per_second"), float),
    **dict.fromkeys(("train/logit_positions_per_second", "train/median_tokens_per_second"), float),
    **{"warmup_steps": int, "timed_start": str, "timed_end": str},
    **dict.fromkeys(("timed_s", "energy_j", "real_tokens_per_joule"), float),
    **dict.fromkeys(("peak_mem_alloc_mib", "peak_mem_reserved_mib", "optimizer_states_mib"), float),
    "peak_mem_alloc_mib_of_ranks": [float],
    **dict.fromkeys(("avg_mem_alloc_MB", "avg_mem_reserved_MB", "avg_mem_total_MB"), float),
    **dict.fromkeys(("avg_gpu_util_%", "std_gpu_util_%"), float),
    "checkpoints": int,
    **dict.fromkeys(("checkpoint_time_s", "checkpoint_write_time_s", "checkpoint_hash_time_s"), float),
    **dict.fromkeys(("checkpoint_mib", "checkpoint_time_share_%"), float),
    **dict.fromkeys(("exact_match", "f1", "train_exact_match", "train_f1"), float),
    **dict.fromkeys(("exact_match_before", "f1_before"), float),
    "exact_match_by_step": dict,
    **dict.fromkeys(("generated_examples", "train_generated_examples"), int),
}

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
    """Raises MistypedError for the first value of a record that is not as the schema says."""
    if isinstance(schema, list):
        if type(value) is not list:
            raise MistypedError(key, value, "a list")
        for one in value:
            check(one, schema[0], key)
    elif isinstance(schema, dict):
        if type(value) is not dict:
            raise MistypedError(key, value, "an object")
        for name, entry in value.items():
            if entry is not None and name in schema:
                check(entry, schema[name], f"{key}.{name}".removeprefix("."))
    # JSON has one kind of number: 1.0 may be written as 1. One of more than 64 bits is no count of anything, and no
    # float can hold it.
    elif type(value) is int and schema in (int, float) and -(2**63) < value < 2**63:
        return
    elif type(value) is not schema or schema is int:
        raise MistypedError(key, value, _JSON_NAMES[schema])
