"""Read a DeepSpeed configuration as this workshop trains it, with the values of its "auto".

Values that env_vars.sh also sets must be "auto" or left out: the Trainer then copies its own arguments into them.
"auto" does not search for the largest batch that fits (erratum K7): the global batch is micro-batch x accumulation
x GPUs, nothing else.
Source of "auto": transformers 5.23, integrations/deepspeed.py. The keys are in deepspeed_keys.toml.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workshop.record.errors import InputError
from workshop.settings.json_file import AUTO, checked, read_kinds
from workshop.settings.offload import Offload

_TABLE = read_kinds(Path(__file__).with_name("deepspeed_keys.toml"))
KINDS, SCHEDULERS, OTHER = _TABLE["kinds"], _TABLE["schedulers"], _TABLE["other"]
ZERO = KINDS["zero_optimization"]
STAGES_12, STAGE_3 = {*_TABLE["stages"]["1_and_2"]}, {*_TABLE["stages"]["3"]}
STAGE_3 |= {name for name in ZERO if name.startswith("stage3_")}
NULL_IS_NOTHING = ("offload_optimizer", "offload_param", "zenflow", "leaf_module", "overlap_comm")
GATHER = "stage3_gather_16bit_weights_on_model_save"
# Transformers fills in settings, and three sizes from the model's hidden size.
_OF_HIDDEN_SIZE = {
    "reduce_bucket_size": lambda hidden: hidden * hidden,
    "stage3_prefetch_bucket_size": lambda hidden: int(0.9 * hidden * hidden),
    "stage3_param_persistence_threshold": lambda hidden: 10 * hidden,
}
# What a value has to agree with: a setting, or what the workshop trains with.
_SAME_AS = {
    "train_micro_batch_size_per_gpu": "BATCH_SIZE",
    "gradient_accumulation_steps": "GRAD_ACC",
    "train_batch_size": "BATCH_SIZE x GRAD_ACC x GPUs",
    "gradient_clipping": "the scripts' max_grad_norm",
    "optimizer.params.lr": "LEARNING_RATE",
    "optimizer.params.betas": "the workshop's pair",
    "optimizer.params.eps": "the workshop's eps",
    "optimizer.params.weight_decay": "WEIGHT_DECAY",
    "scheduler.params.warmup_max_lr": "LEARNING_RATE",
    "scheduler.params.cycle_max_lr": "LEARNING_RATE",
    "scheduler.params.warmup_num_steps": "LR_WARMUP_STEPS, at least 1,",
    "scheduler.params.total_num_steps": "MAX_STEPS",
    "fp16.enabled": "FP16",
    "bf16.enabled": "BF16",
}
_FILLED = _SAME_AS.keys() - {"scheduler.params.cycle_max_lr"}
_AUTOS = _FILLED | {"scheduler.params.warmup_min_lr"}
_AUTOS_ZERO = {f"zero_optimization.{name}" for name in (*_OF_HIDDEN_SIZE, GATHER)}


def checked_deepspeed(
    path: Path, content: dict[str, Any], settings: Mapping[str, Any], world_size: int, trainer: bool = True
) -> tuple[dict[str, Any], list[str]]:
    """Return the configuration under today's names, with "auto" for missing keys, and notes for the start.

    Args:
        settings: by their names in small letters; one that is missing contradicts nothing.
        trainer: False: further/by-hand/, where no Trainer fills in "auto" and optimizer and scheduler are the script's.

    Raises:
        InputError: a key or a value that is not trained as it is written.
    """
    zero = content.get("zero_optimization")
    if isinstance(zero, dict):
        content = content | {"zero_optimization": _renamed(path, zero)}
    auto = _AUTOS | _AUTOS_ZERO if trainer else _AUTOS
    content = checked(path, content, KINDS, auto=auto, other=OTHER)
    if "stage" not in content.get("zero_optimization", {}):
        raise InputError(f"{path}: found no zero_optimization.stage, expected 0, 1, 2 or 3")
    scheduler = content.get("scheduler")
    if scheduler and not trainer:
        raise InputError(f"{path}: nothing reads 'scheduler' here, the script has its own; expected it left out")
    for name in ("optimizer", "scheduler"):
        if "type" not in content.get(name, {"type"}):
            raise InputError(f"{path}: {name} has no type; expected {' or '.join(KINDS[name]['type'])}")
    if scheduler:
        kinds, params = SCHEDULERS[scheduler["type"]], scheduler.get("params", {})
        scheduler["params"] = checked(path, params, kinds, "scheduler.params", auto=auto)
        if missing := [name for name in ("cycle_min_lr", "cycle_max_lr") if name in kinds.keys() - params.keys()]:
            raise InputError(f"{path}: found no scheduler.params.{missing[0]}, expected one: DeepSpeed has no default")
    if trainer and settings.get("optimizer", "adamw_torch_fused") != "adamw_torch_fused" and "optimizer" in content:
        raise InputError(
            f"OPTIMIZER={settings['optimizer']}: {path} has an optimizer of its own, which wins; expected it left out"
        )
    left_out = _fill(path, content, settings, world_size)
    if content.get("compile", {}).get("deepcompile") and settings and not settings.get("compile"):
        raise InputError(f"{path}: compile.deepcompile needs COMPILE=true of the speed ladder; expected it left out")
    notes = [f"takes {', '.join(left_out)} from the run's settings, because it leaves them out"] if left_out else []
    zero = content["zero_optimization"]
    notes += _check_stage(path, zero)
    if "8bit" in settings.get("optimizer", "") and Offload.of(content).share:
        raise InputError(f"OPTIMIZER={settings['optimizer']}: {path} offloads DeepSpeed's Adam; expected adamw_torch")
    if settings.get("optimizer") == "muon" and zero["stage"] == 3 and zero.get("reduce_scatter", True):
        raise InputError(f"OPTIMIZER=muon: {path} is ZeRO-3; expected stage 1 or 2, or reduce_scatter false beside it")
    notes += _without_effect(content)
    if not zero["stage"] and settings.get("fp16") and content["fp16"].get("loss_scale") != 1:
        notes.append("divides stage 0's gradients by a scale that the loss does not get; expected fp16.loss_scale 1")
    if trainer and zero["stage"] == 3:
        notes += _gather(path, zero, settings.get("save", "no") != "no")
    return content, notes


def filled(content: dict[str, Any], hidden_size: int) -> dict[str, Any]:
    """Return the configuration with Transformers' numbers for "auto" once the model is known."""
    zero = content.get("zero_optimization", {})
    sizes = {name: of(hidden_size) for name, of in _OF_HIDDEN_SIZE.items() if zero.get(name) == AUTO}
    return content | {"zero_optimization": zero | sizes} if sizes else content


def operators_of(content: dict[str, Any]) -> list[str]:
    """Return DeepSpeed's compiled operators: of the optimizer, if it is not PyTorch's, and of DeepCompile."""
    names = ["dc"] if content.get("compile", {}).get("deepcompile") else []
    on_cpu = Offload.of(content).share > 0
    if "optimizer" in content:
        if not content["optimizer"].get("params", {}).get("torch_adam"):
            names.append("cpu_adam" if on_cpu else "fused_adam")
    elif on_cpu and content.get("zero_force_ds_cpu_optimizer", True):
        names.append("cpu_adam")  # accelerate makes the Trainer's AdamW DeepSpeed's
    return names


def _renamed(path: Path, zero: dict[str, Any]) -> dict[str, Any]:
    """Translate old names as DeepSpeed does, and drop keys that are null."""
    new_names = {name.removeprefix("stage3_"): name for name in ZERO}
    new_names |= {"stage3_gather_fp16_weights_on_model_save": GATHER}
    new_names |= {"cpu_offload": "offload_optimizer", "cpu_offload_param": "offload_param"}
    renamed = {}
    for name, value in zero.items():
        if value is None and name in NULL_IS_NOTHING:
            continue
        new = new_names.get(name, name)
        if new != name and new in zero:
            raise InputError(f"{path}: zero_optimization.{name} is the old name of {new}; expected only the new one")
        if name.startswith("cpu_offload") and isinstance(value, bool):
            value = {"device": "cpu" if value else "none"}
        renamed[new] = value
    return renamed


def _fill(path: Path, content: dict[str, Any], settings: Mapping[str, Any], world_size: int) -> list[str]:
    """Put "auto" for missing keys that the settings have; return those for which DeepSpeed has another default.

    Raises InputError where the JSON contradicts the settings: micro-batch 4 beside a loader with 32 (erratum B5).
    """
    rows, warmup_steps = [settings.get(name) for name in ("batch_size", "grad_acc")], settings.get("lr_warmup_steps")
    values = {name: settings.get(name.lower()) for name in _SAME_AS.values()} | {
        "BATCH_SIZE x GRAD_ACC x GPUs": None if None in rows else rows[0] * rows[1] * world_size,
        "the scripts' max_grad_norm": 1.0,
        "the workshop's pair": [0.9, 0.999],
        "the workshop's eps": 1e-8,
        "LR_WARMUP_STEPS, at least 1,": None if warmup_steps is None else max(1, warmup_steps),
    }
    left_out = []
    for key, same_as in _SAME_AS.items():
        *sections, name = key.split(".")
        if sections[-1:] == ["params"] and sections[0] not in content:  # of an optimizer or a scheduler
            continue
        part = content
        for section in sections:
            part = part.setdefault(section, {})
        if name in part:
            if (value := values[same_as]) is not None and part[name] not in (AUTO, value):
                expected = '"auto" in the JSON' if key in _FILLED else "the same in both"
                raise InputError(f"{path}: {key} is {part[name]!r}, but {same_as} is {value!r}; expected {expected}")
        elif key in _FILLED and (sections[:1] != ["scheduler"] or name in SCHEDULERS[content["scheduler"]["type"]]):
            part[name] = AUTO
            if name not in ("train_batch_size", "betas", "eps", "enabled", "total_num_steps"):
                left_out.append(key)
    return left_out


def _check_stage(path: Path, zero: dict[str, Any]) -> list[str]:
    """Drop offloading to `none`; a key that the stage does not read is an error, or a note if it costs no memory."""
    stage = zero["stage"]
    for name, least in {"offload_optimizer": 1, "offload_param": 3}.items():
        section = zero.get(name, {"device": "none"})
        if "device" not in section:
            raise InputError(f"{path}: zero_optimization.{name} has no device; expected cpu, or none")
        if section["device"] == "none":
            zero.pop(name, None)
        elif stage < least:
            raise InputError(f"{path}: stage {stage} does not read zero_optimization.{name}; expected stage {least}")
    if stage < 3 and zero.get("offload_optimizer", {}).get("ratio", 1) < 1:
        raise InputError(f"{path}: stage {stage} offloads all or nothing; expected no ratio, or stage 3")
    unread = {0: ZERO.keys() - {"stage"}, 3: STAGES_12}.get(stage, STAGE_3)
    unread = [name for name in zero if name in unread and zero[name] not in (False, 0)]
    return [f"has {', '.join(unread)}, which ZeRO stage {stage} does not read"] if unread else []


def _without_effect(content: dict[str, Any]) -> list[str]:
    """Drop keys that no Trainer reads, so that nothing is planned with them; return notes."""
    notes = []
    if any(content.pop("activation_checkpointing", {}).values()):
        notes.append("has activation_checkpointing, which does nothing here; expected GRADIENT_CHECKPOINTING=true")
    if content.pop("aio", None):
        notes.append("has aio, which does nothing: it is for offloading to nvme")
    if content.pop("steps_per_print", None):
        notes.append("has steps_per_print, which does nothing: steps.csv has every step")
    if content.get("scheduler", {}).get("type") == "LRRangeTest":
        notes.append("tests a range of learning rates, so LEARNING_RATE does nothing")
    return notes


def _gather(path: Path, zero: dict[str, Any], saves: bool) -> list[str]:
    """Gather weights for saving: DeepSpeed's default, and accelerate's value for "auto", saves none."""
    if zero.get(GATHER) is False and saves:
        raise InputError(
            f"{path}: zero_optimization.{GATHER} is False: no weights are saved; expected true, or SAVE=no"
        )
    if zero.get(GATHER, AUTO) != AUTO:
        return []
    zero[GATHER] = saves
    return [f"does not set {GATHER}: true here, for the weights to be saved"] if saves else []
