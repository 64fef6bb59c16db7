"""A DeepSpeed configuration as this workshop trains it: what is allowed in it, and what its "auto" becomes.

Values that env_vars.sh also sets must be "auto" or left out: the Trainer then copies its own arguments into them.
"auto" does not search for the largest batch that fits (erratum K7): the global batch is micro-batch x accumulation
x GPUs, nothing else.
Source: https://www.deepspeed.ai/docs/config-json/ and DeepSpeed 0.19.8's classes; of "auto": transformers 5.23,
integrations/deepspeed.py. A test compares the table with the classes.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from run_folder.errors import InputError
from run_folder.json_file import AUTO, checked

ENABLED = {"enabled": bool}
OFFLOAD = {"device": ("none", "cpu"), "pin_memory": bool, "nvme_path": object}
OFFLOAD |= dict.fromkeys(("buffer_count", "buffer_size", "max_in_cpu"), 0)
OFFLOAD_OPTIMIZER = {
    **{name: OFFLOAD[name] for name in ("device", "pin_memory", "nvme_path", "buffer_count")},
    **dict.fromkeys(("pipeline_read", "pipeline_write", "fast_init", "super_offload"), bool),
    **dict.fromkeys(("ratio", "cpuadam_cores_perc"), (0.0, 1.0)),
}
ZENFLOW = {
    **{"topk_ratio": (1e-6, 0.999999), "select_strategy": ("step", "epoch")},
    **dict.fromkeys(("select_interval", "update_interval"), 1),
    **dict.fromkeys(("auto_ratio", "pt_reserved_cores_perc"), (0.0, 1.0)),
    **{"overlap_step": bool, "offload": bool, "full_warm_up_rounds": 0},
}
# Read by stages 1 and 2 only, or by stage 3 only; a value alone: nothing else is measured or planned here.
STAGES_12 = {
    **dict.fromkeys(("allgather_partitions", "use_multi_rank_bucket_allreduce", "round_robin_gradients"), bool),
    **dict.fromkeys(("parameter_alignment", "ignore_unused_parameters", "elastic_checkpoint"), bool),
    **{"allgather_bucket_size": 0, "legacy_stage1": (False,)},
}
STAGE_3 = {
    **dict.fromkeys(("prefetch_bucket_size", "param_persistence_threshold", "model_persistence_threshold"), 0),
    **dict.fromkeys(("max_live_parameters", "max_reuse_distance", "module_granularity_threshold"), 0),
    **dict.fromkeys(("gather_16bit_weights_on_model_save", "use_all_reduce_for_fetch_params"), bool),
    "allgather_sequential": bool,
}
UNPREFIXED = tuple(STAGE_3)  # DeepSpeed takes them with stage3_ and without
STAGE_3 = {f"stage3_{name}": kind for name, kind in STAGE_3.items()} | {
    **dict.fromkeys(("memory_efficient_linear", "override_module_apply", "log_trace_cache_warnings"), bool),
    **dict.fromkeys(("pipeline_loading_checkpoint", "enable_sanity_checks"), bool),
    **{"save_muon_momentum_buffer_in_memory": bool, "sub_group_size": 0, "offload_param": OFFLOAD},
    **dict.fromkeys(("zero_quantized_weights", "zero_quantized_nontrainable_weights"), (False,)),
    **{"zero_quantized_gradients": (False,), "zero_hpz_partition_size": (1,)},
    "leaf_module": dict.fromkeys(("classes", "names", "name_suffixes"), list),
}
ZERO = {
    "stage": (0, 1, 2, 3),
    **dict.fromkeys(("contiguous_gradients", "reduce_scatter", "overlap_comm", "load_from_fp32_weights"), bool),
    **{
        "reduce_bucket_size": 1,
        "compute_grad_norm": (True,),
        "offload_optimizer": OFFLOAD_OPTIMIZER,
        "zenflow": ZENFLOW,
    },
    **STAGES_12,
    **STAGE_3,
}
FP16 = {
    **dict.fromkeys(("enabled", "auto_cast", "consecutive_hysteresis"), bool),
    **{"loss_scale": 0.0, "initial_scale_power": 0, "loss_scale_window": 1, "hysteresis": 0, "min_loss_scale": 1},
    "fp16_master_weights_and_grads": (False,),
}
BF16 = {
    **dict.fromkeys(("enabled", "immediate_grad_update", "check_grad_overflow"), bool),
    **dict.fromkeys(("bf16_master_weights_and_grads", "bf16_optimizer_states"), (False,)),
}
OPTIMIZERS = ("AdamW", "Adam", "adamw", "adam")
OPTIMIZER = {
    **{"lr": 0.0, "betas": object, "eps": 0.0, "weight_decay": 0.0, "amsgrad": (False,)},
    **dict.fromkeys(("torch_adam", "adam_w_mode"), bool),
}
_WARMUP = {"warmup_num_steps": 1, "warmup_type": ("log", "linear"), "last_batch_iteration": -1}
_WARMUP_LR = {**_WARMUP, "warmup_min_lr": 0.0, "warmup_max_lr": 0.0}
SCHEDULERS: dict[str, dict[str, Any]] = {
    "WarmupLR": _WARMUP_LR,
    "WarmupDecayLR": {**_WARMUP_LR, "total_num_steps": 1},
    "WarmupCosineLR": {**_WARMUP, "total_num_steps": 1, "warmup_min_ratio": 0.0, "cos_min_ratio": 0.0},
    "OneCycle": {
        **dict.fromkeys(("cycle_min_lr", "cycle_max_lr", "decay_lr_rate"), 0.0),
        **dict.fromkeys(("cycle_min_mom", "cycle_max_mom", "decay_mom_rate"), 0.0),
        **dict.fromkeys(("cycle_first_step_size", "cycle_second_step_size"), 1),
        **dict.fromkeys(("cycle_first_stair_count", "cycle_second_stair_count", "decay_step_size"), 0),
        **{"cycle_momentum": bool, "last_batch_iteration": -1},
    },
    "LRRangeTest": {
        **{"lr_range_test_min_lr": 0.0, "lr_range_test_step_size": 1, "lr_range_test_step_rate": 0.0},
        **{"lr_range_test_staircase": bool, "last_batch_iteration": -1},
    },
}
_OFF, _WRITER, _TYPES = {"enabled": (False,)}, {"output_path": str, "job_name": str}, ("fp32", "fp16", "bf16")
KINDS: dict[str, Any] = {
    **dict.fromkeys(("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"), 1),
    **{"gradient_clipping": 0.0, "steps_per_print": 0.0},
    **{"prescale_gradients": (False,), "gradient_predivide_factor": (1, 1.0)},  # ZeRO refuses others
    **dict.fromkeys(("wall_clock_breakdown", "memory_breakdown", "dump_state"), bool),
    **dict.fromkeys(("zero_allow_untested_optimizer", "zero_force_ds_cpu_optimizer"), bool),
    "communication_data_type": _TYPES,
    **{"optimizer": {"type": OPTIMIZERS, "params": OPTIMIZER}, "fp16": FP16, "bf16": BF16},
    **{"scheduler": {"type": tuple(SCHEDULERS), "params": object}, "zero_optimization": ZERO},
    "activation_checkpointing": {
        **dict.fromkeys(("partition_activations", "cpu_checkpointing", "contiguous_memory_optimization"), bool),
        **dict.fromkeys(("synchronize_checkpoint_boundary", "profile"), bool),
        "number_checkpoints": object,
    },
    "aio": {
        **dict.fromkeys(("block_size", "queue_depth", "thread_count", "intra_op_parallelism"), 1),
        **dict.fromkeys(("single_submit", "overlap_events", "use_gds"), bool),
    },
    "flops_profiler": {
        **ENABLED,
        **{"profile_step": 1, "module_depth": -1, "top_modules": 1, "detailed": bool},
        **{"output_file": object, "recompute_fwd_factor": 0.0},
    },
    "comms_logger": {**dict.fromkeys(("enabled", "verbose", "prof_all", "debug"), bool), "prof_ops": object},
    **{"csv_monitor": ENABLED | _WRITER, "tensorboard": _OFF | _WRITER, "data_types": {"grad_accum_dtype": _TYPES}},
    "wandb": ENABLED | dict.fromkeys(("group", "team", "project"), str),
    "checkpoint": {
        "tag_validation": ("Ignore", "Warn", "Fail", "IGNORE", "WARN", "FAIL"),
        **{"load_universal": bool, "use_node_local_storage": bool, "parallel_write": {"pipeline_stage": bool}},
    },
    **dict.fromkeys(("torch_autocast", "autotuning", "hybrid_engine", "data_efficiency"), _OFF),
}
NULL_IS_NOTHING = ("offload_optimizer", "offload_param", "zenflow", "leaf_module", "overlap_comm")
_REMOVED = "it left out: DeepSpeed 0.19 has removed it"
OTHER = {
    **dict.fromkeys(("amp", "elasticity", "nebula", "compression_training", "quantize_training"), _REMOVED),
    **dict.fromkeys(("sparse_gradients", "eigenvalue", "sparse_attention", "graph_harvesting"), _REMOVED),
    **dict.fromkeys(("curriculum_learning", "progressive_layer_drop", "zeropp_loco_param"), _REMOVED),
    **dict.fromkeys(("mics_shard_size", "mics_hierarchical_params_gather"), f"{_REMOVED}, MiCS"),
    **{"bfloat16": "bf16, its new name", "tensor_parallel": "it left out, and dimensions/tp.py for tensor parallelism"},
    **{"compile": "it left out, and COMPILE=true of the speed ladder", "max_grad_norm": "gradient_clipping"},
    "cpu_offload_use_pin_memory": "pin_memory in offload_optimizer or offload_param",
}
GATHER = "stage3_gather_16bit_weights_on_model_save"
# What Transformers fills in: settings and, of the model's hidden size, three sizes.
_OF_HIDDEN_SIZE = {
    "reduce_bucket_size": lambda hidden: hidden * hidden,
    "stage3_prefetch_bucket_size": lambda hidden: int(0.9 * hidden * hidden),
    "stage3_param_persistence_threshold": lambda hidden: 10 * hidden,
}
_FILLED = (
    *("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "gradient_clipping"),
    *("fp16.enabled", "bf16.enabled", *(f"optimizer.params.{name}" for name in ("lr", "betas", "eps", "weight_decay"))),
    *(f"scheduler.params.{name}" for name in ("warmup_max_lr", "warmup_num_steps", "total_num_steps")),
)
_AUTOS = {*_FILLED, "scheduler.params.warmup_min_lr"}
_AUTOS_ZERO = {f"zero_optimization.{name}" for name in (*_OF_HIDDEN_SIZE, GATHER)}


def read(
    path: Path, config: dict[str, Any], settings: Mapping[str, Any], world_size: int, trainer: bool = True
) -> tuple[dict[str, Any], list[str]]:
    """The configuration under today's names, with "auto" for what it leaves out, and what to say of it at the start.

    Args:
        settings: by their names in small letters; one that is missing contradicts nothing.
        trainer: False: by-hand/zero.py, where no Trainer fills in "auto" and optimizer and scheduler are the script's.

    Raises:
        InputError: a key or a value that is not trained as it is written.
    """
    zero = config.get("zero_optimization")
    if isinstance(zero, dict):
        config = config | {"zero_optimization": _renamed(path, zero)}
    auto = _AUTOS | _AUTOS_ZERO if trainer else _AUTOS
    config = checked(path, config, KINDS, auto=auto, other=OTHER)
    if "stage" not in config.get("zero_optimization", {}):
        raise InputError(f"{path}: found no zero_optimization.stage, expected 0, 1, 2 or 3")
    scheduler = config.get("scheduler")
    if scheduler and not trainer:
        raise InputError(f"{path}: nothing reads 'scheduler' here, the script has its own; expected it left out")
    for name in ("optimizer", "scheduler"):
        if "type" not in config.get(name, {"type"}):
            raise InputError(f"{path}: {name} has no type; expected {' or '.join(KINDS[name]['type'])}")
    if scheduler:
        kinds, params = SCHEDULERS[scheduler["type"]], scheduler.get("params", {})
        scheduler["params"] = checked(path, params, kinds, "scheduler.params", auto=auto)
        if missing := [name for name in ("cycle_min_lr", "cycle_max_lr") if name in kinds.keys() - params.keys()]:
            raise InputError(f"{path}: found no scheduler.params.{missing[0]}, expected one: DeepSpeed has no default")
    left_out = _fill(config)
    if trainer and settings.get("optimizer", "adamw_torch_fused") != "adamw_torch_fused" and "optimizer" in config:
        raise InputError(
            f"OPTIMIZER={settings['optimizer']}: {path} has an optimizer of its own, which wins; expected it left out"
        )
    if "8bit" in settings.get("optimizer", "") and "offload_optimizer" in config["zero_optimization"]:
        raise InputError(f"OPTIMIZER={settings['optimizer']}: {path} offloads DeepSpeed's Adam; expected adamw_torch")
    for name, key in (("csv_monitor", "output_path"), ("flops_profiler", "output_file")):
        found = Path(config.get(name, {}).get(key) or ".")
        nearest = next(folder for folder in (found, *found.absolute().parents) if folder.exists())
        if config.get(name, {}).get("enabled") and not os.access(nearest, os.W_OK):
            raise InputError(
                f"{path}: {name}.{key} is '{found}': {nearest} cannot be written; expected a path that can"
            )
    _check_settings(path, config, settings, world_size)
    notes = [f"takes {', '.join(left_out)} from env_vars.sh, because it leaves them out"] if left_out else []
    notes += _check_stage(path, config["zero_optimization"])
    notes += _without_effect(config)
    if trainer and config["zero_optimization"]["stage"] == 3:
        notes += _gather(path, config["zero_optimization"], settings.get("save", "no") != "no")
    return config, notes


def filled(config: dict[str, Any], hidden_size: int) -> dict[str, Any]:
    """The configuration with the numbers that Transformers puts in for "auto" once the model is known."""
    zero = config.get("zero_optimization", {})
    sizes = {name: of(hidden_size) for name, of in _OF_HIDDEN_SIZE.items() if zero.get(name) == AUTO}
    return config | {"zero_optimization": zero | sizes} if sizes else config


def _renamed(path: Path, zero: dict[str, Any]) -> dict[str, Any]:
    """Old names as DeepSpeed translates them, without what null leaves out."""
    new_names = {name: f"stage3_{name}" for name in UNPREFIXED} | {"stage3_gather_fp16_weights_on_model_save": GATHER}
    new_names |= {"cpu_offload": "offload_optimizer", "cpu_offload_param": "offload_param"}
    found = {}
    for name, value in zero.items():
        if value is None and name in NULL_IS_NOTHING:
            continue
        new = new_names.get(name, name)
        if new != name and new in zero:
            raise InputError(f"{path}: zero_optimization.{name} is the old name of {new}; expected only the new one")
        if name.startswith("cpu_offload") and isinstance(value, bool):
            value = {"device": "cpu" if value else "none"}
        found[new] = value
    return found


def _fill(config: dict[str, Any]) -> list[str]:
    """Put "auto" where the configuration leaves out what the settings say; returns those of other defaults."""
    left_out = []
    for key in _FILLED:
        *sections, name = key.split(".")
        kinds: Any = KINDS
        if sections and sections[0] in ("optimizer", "scheduler"):
            if sections[0] not in config:
                continue
            kinds = SCHEDULERS[config["scheduler"]["type"]] if sections[0] == "scheduler" else OPTIMIZER
        part = config
        for section in sections:
            part = part.setdefault(section, {})
        if name not in part and (len(sections) < 2 or name in kinds):
            part[name] = AUTO
            if name not in ("train_batch_size", "betas", "eps", "enabled", "total_num_steps"):
                left_out.append(key)
    return left_out


def _check_settings(path: Path, config: dict[str, Any], settings: Mapping[str, Any], world_size: int) -> None:
    """They have one place: a JSON with micro-batch 4 beside a loader with 32 trains on neither (erratum B5)."""
    rows = [settings.get(name) for name in ("batch_size", "grad_acc")]
    warmup_steps = settings.get("lr_warmup_steps")
    rate = ("LEARNING_RATE", settings.get("learning_rate"))
    expected: dict[str, tuple[str, Any]] = {
        "train_micro_batch_size_per_gpu": ("BATCH_SIZE", rows[0]),
        "gradient_accumulation_steps": ("GRAD_ACC", rows[1]),
        "train_batch_size": ("BATCH_SIZE x GRAD_ACC x GPUs", None if None in rows else rows[0] * rows[1] * world_size),
        "gradient_clipping": ("the workshop's gradient clipping", 1.0),
        "optimizer.params.lr": rate,
        "optimizer.params.betas": ("the workshop's pair", [0.9, 0.999]),
        "optimizer.params.eps": ("the workshop's eps", 1e-8),
        "optimizer.params.weight_decay": ("WEIGHT_DECAY", settings.get("weight_decay")),
        "scheduler.params.warmup_max_lr": rate,
        "scheduler.params.cycle_max_lr": rate,
        "scheduler.params.warmup_num_steps": (
            "LR_WARMUP_STEPS, at least 1,",
            None if warmup_steps is None else max(1, warmup_steps),
        ),
        "scheduler.params.total_num_steps": ("MAX_STEPS", settings.get("max_steps")),
        "fp16.enabled": ("FP16", settings.get("fp16")),
        "bf16.enabled": ("BF16", settings.get("bf16")),
    }
    for key, (name, value) in expected.items():
        found: Any = config
        for part in key.split("."):
            found = found.get(part, AUTO) if isinstance(found, dict) else AUTO
        if value is not None and found not in (AUTO, value):
            mended = '"auto" in the JSON' if key in _AUTOS else "the same in both"
            raise InputError(f"{path}: {key} is {found!r}, but {name} is {value!r}; expected {mended}")


def _check_stage(path: Path, zero: dict[str, Any]) -> list[str]:
    """Leave out offloading to nowhere; what the stage does not read is an error, or a note if it costs no memory."""
    stage = zero["stage"]
    for name, least in {"offload_optimizer": 1, "offload_param": 3}.items():
        section = zero.get(name, {"device": "none"})
        if "device" not in section:
            raise InputError(f"{path}: zero_optimization.{name} has no device; expected cpu, or none")
        if section["device"] == "none":
            zero.pop(name, None)
        elif stage < least:
            raise InputError(f"{path}: stage {stage} does not read zero_optimization.{name}; expected stage {least}")
    optimizer = zero.get("offload_optimizer", {})
    if stage < 3 and (optimizer.get("ratio", 1) < 1 or optimizer.get("super_offload")):
        raise InputError(f"{path}: stage {stage} offloads all or nothing; expected no ratio, no super_offload, or 3")
    unread = {0: ZERO.keys() - {"stage"}, 3: STAGES_12.keys()}.get(stage, STAGE_3.keys())
    unread = [name for name in zero if name in unread and zero[name] not in (False, 0)]
    return [f"has {', '.join(unread)}, which ZeRO stage {stage} does not read"] if unread else []


def _without_effect(config: dict[str, Any]) -> list[str]:
    """Take out what no Trainer reads, so that nothing is planned as if it did something; returns what to say."""
    notes = []
    if any(config.pop("activation_checkpointing", {}).values()):
        notes.append("has activation_checkpointing, which does nothing here; expected GRADIENT_CHECKPOINTING=true")
    if config.pop("aio", None):
        notes.append("has aio, which does nothing: it is for offloading to nvme")
    if config.pop("steps_per_print", None):
        notes.append("has steps_per_print, which does nothing: steps.csv has every step")
    if config.get("scheduler", {}).get("type") == "LRRangeTest":
        notes.append("tests a range of learning rates, so LEARNING_RATE does nothing")
    return notes


def _gather(path: Path, zero: dict[str, Any], saves: bool) -> list[str]:
    """Without gathering there are no weights to save: DeepSpeed's default, and what accelerate makes of "auto"."""
    if zero.get(GATHER) is False and saves:
        raise InputError(
            f"{path}: zero_optimization.{GATHER} is False: no weights are saved; expected true, or SAVE=no"
        )
    if zero.get(GATHER, AUTO) != AUTO:
        return []
    zero[GATHER] = saves
    return [f"does not set {GATHER}: true here, for the weights to be saved"] if saves else []
