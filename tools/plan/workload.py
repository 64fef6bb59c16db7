"""A run's workload, from its settings: the step to simulate, and the strategy that places its states.

The settings are those of run.json, or what `submit` finds for a line (tools/submit): the same names either way.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import ceil
from pathlib import Path
from typing import Any

from tools.errors import InputError
from tools.logs.run import Run, read_object
from tools.plan.layout import LOSS_CHUNK, Layout
from tools.tables.repository import ROOT, exercise_folder
from workshop.run_folder.attention import fastest_kernel
from workshop.run_folder.configuration import BY_HAND, read_configuration
from workshop.run_folder.deepspeed_config import filled
from workshop.run_folder.json_file import AUTO
from workshop.run_folder.model_file import model_file, model_path, short_name

TRAIN = "train.py"
# Simulated: training with the Trainer, and by-hand's three scripts without one.
SCRIPTS = (TRAIN, "ddp.py", "fsdp.py", "zero.py")
WEAK_SCALING = "custom_model"  # whose JSON is a rule: the model and the batch follow from the number of GPUs
# custom_model's; its name is a default of its settings there.
_GPT = "simple-gpt"
_GPT_SIZES = ("vocab_size", "hidden_size", "num_layers", "num_heads", "ff_dim", "seq_length")
# The ladder's switches that change the model, and their values in the library's own way.
_USUAL = {"attention": "eager", "loss": "full", "stream": "fp32", "logits": "all", "packing": False, "compile": False}
# Kernels that keep what flex_attention keeps, and their time beside its on an H200 (further/speed-ladder/RESULTS.md).
_BESIDE_FLEX = {"documents": 0.47, "cudnn": 0.73}
# torch/nn/parallel/distributed.py, bucket_cap_mb's default.
_DDP_BUCKET_MIB = 25
# Positions whose next token is a target, of all positions of packed rows: the most in a step of any reference run
# (logit_positions / tokens of steps.csv, rungs 11 of logs/reference: 0.0305 to 0.0347).
LABELLED_SHARE = 0.0335
# Filled share of rows that are padded to the longest of their micro-batch: steps.csv of rung 3 in logs/reference,
# 16 rows of at most 512 positions of SQuAD: 5,008 of 8,192.
DYNAMIC_SHARE = 0.61
# Examples in a packed row of 512 positions: samples / rows in steps.csv of all rungs from 4 on in logs/reference, 2.88
# to 2.96. Examples of SQuAD are as long as their text, so other lengths hold proportionally many.
EXAMPLES_PER_POSITION = 2.9 / 512
# The network between nodes by default: TCP sockets, as nccl.log of logs/reference/h200x4/custom_model
# has it for 2 and 4 emulated nodes (4.7 and 4.9 GB/s).
SOCKETS_GB_PER_S = 4.8
# DeepSpeed's default where the configuration does not say: deepspeed/runtime/zero/config.py, DeepSpeedZeroConfig.
MAX_LIVE_PARAMETERS = 1_000_000_000


@dataclass(frozen=True)
class Strategy:
    """How a step's states lie on the GPUs."""

    method: str  # none, ddp, zero0 to zero3, fsdp1, fsdp2; as run.json's sharding.method
    world_size: int  # ranks
    accumulation: int  # micro-batches per optimizer step
    half: bool  # whether the run has a half precision; DeepSpeed then keeps fp32 master weights beside the half ones
    config: dict[str, Any]  # the launcher's JSON, {} without one
    moment_bytes: int = 8  # of a parameter's two moments, where DeepSpeed does not keep them

    # Bytes of a parameter in the precision that ZeRO and FSDP compute in.
    width = property(lambda self: 2 if self.half else 4)
    # DeepSpeed's own part of the configuration; {} without it.
    zero = property(lambda self: self.config.get("zero_optimization", {}))
    # Its offload_optimizer; {} where it is left out or null, by which DeepSpeed means the same.
    optimizer = property(lambda self: self.zero.get("offload_optimizer") or {})
    # Whether FSDP frees a block's gathered weights between its forward and its backward pass.
    reshards = property(lambda self: self.config.get("reshard_after_forward", True) in (True, "full_shard"))

    @property
    def shards(self) -> int:
        """Ranks that share one copy of the optimizer's states."""
        if self.method.startswith("fsdp"):
            return self.world_size // self.config.get("dp_replicate_size", 1)
        return self.world_size if self.method in ("zero1", "zero2", "zero3") else 1

    @property
    def share_on_cpu(self) -> float:
        """The share of the optimizer's states in CPU memory, 0 to 1."""
        if self.optimizer.get("device") == "cpu":
            return self.optimizer.get("ratio", 1.0)
        return float(bool(self.config.get("cpu_offload")))

    @property
    def parameters_on_cpu(self) -> bool:
        in_zero = (self.zero.get("offload_param") or {}).get("device") == "cpu"
        return in_zero or bool(self.config.get("cpu_offload"))

    @property
    def pinned(self) -> bool:
        """Whether the CPU memory that is offloaded to is pinned. Source: DeepSpeed's default, pin_memory: true."""
        in_zero = bool(self.optimizer) and self.optimizer.get("pin_memory", True)
        return bool(self.config.get("cpu_offload")) or in_zero


@dataclass(frozen=True)
class Workload:
    """A run's work, and for how long."""

    shape: dict[str, Any]  # the fields of workshop.simulate.step_on_meta.StepShape
    strategy: Strategy
    nodes: int = 1
    fabric_gb_per_s: float = SOCKETS_GB_PER_S  # all-reduce bandwidth between nodes, as in nccl.log
    dynamic_padding: bool = False  # rows are padded to the longest of their micro-batch only
    attention_share: float = 1  # time of the attention beside flex_attention's
    data_workers: bool = False  # other processes make the rows
    examples: int = 0
    epochs: int = 1
    max_steps: int = 0  # optimizer steps; 0: `epochs` times all examples
    eval_examples: int = 0  # evaluated after each epoch
    generated: int = 0  # micro-batches of answers that a rank generates before and after the training
    packing: bool = False  # a row holds several examples
    save: str = "no"  # no, steps, epoch, or end
    save_steps: int = 0  # of `steps`; 0: so seldom that it takes 1 % of the time
    pretrained: bool = False  # weights are read on the CPU before they go to the GPU; random ones are drawn there
    layout: Layout | None = (
        None  # of ranks that share rows, matrices or layers; then `shape` has a rank's part of a row
    )

    # The training loop of further/by-hand/, without a Trainer.
    by_hand = property(lambda self: "loss_outside" in self.shape)
    row_length = property(lambda self: self.layout.length if self.layout else self.shape["max_length"])
    examples_per_row = property(lambda self: EXAMPLES_PER_POSITION * self.shape["max_length"] if self.packing else 1)
    # Positions of all ranks in a step, padding included.
    tokens_per_step = property(lambda self: self.rows_per_step * self.row_length * self.filled)
    # The filled share of rows that are padded.
    filled = property(lambda self: DYNAMIC_SHARE if self.dynamic_padding else 1)
    # Optimizer steps that pass all examples once, and those of the run.
    steps_per_epoch = property(lambda self: ceil(self.examples / (self.rows_per_step * self.examples_per_row)))
    steps = property(lambda self: self.max_steps or self.steps_per_epoch * self.epochs)
    # One after each epoch, the unfinished last one of MAX_STEPS included.
    evaluations = property(lambda self: max(1, ceil(self.steps / max(1, self.steps_per_epoch))))

    @property
    def family(self) -> str:
        """The sharding library: fsdp, zero, or others."""
        return next((name for name in ("fsdp", "zero") if self.strategy.method.startswith(name)), "others")

    @property
    def readers(self) -> float:
        """Ranks of the fullest node that hold all weights while they are read: workshop/training/models.py, load_model.

        Under ZeRO-3 rank 0 alone copies them from the file, a layer at a time.
        """
        sent = self.strategy.config.get("cpu_ram_efficient_loading") and not self.shape.get("four_bits")
        alone = self.strategy.method == "zero3" or (self.strategy.method == "fsdp2" and sent)
        return 1 if alone else self.strategy.world_size / self.nodes

    @property
    def compiles(self) -> bool:
        shape = self.shape
        return bool(shape.get("compile")) or shape.get("attention") == "flex" or shape.get("loss") == "chunked"

    @property
    def rows_per_step(self) -> int:
        """Rows of all ranks in an optimizer step."""
        if self.layout:
            return self.layout.dp * self.layout.micro_batches
        return self.shape["batch_size"] * self.strategy.accumulation * self.strategy.world_size

    @property
    def saves(self) -> int:
        """Checkpoints, and the final model."""
        if self.save == "no":
            return 0
        named = self.steps // self.save_steps if self.save == "steps" and self.save_steps else 0
        return 1 + (self.evaluations if self.save == "epoch" else named)

    @cached_property
    def key(self) -> str:
        """Equal for runs that do the same, whatever their length."""
        own = (self.nodes, self.fabric_gb_per_s, self.dynamic_padding, self.attention_share, self.data_workers)
        return json.dumps([self.shape, vars(self.strategy), own], sort_keys=True)


def of_run(run: Run) -> Workload:
    """The workload of a recorded run. Raises InputError if it lacks settings or ranks, or ran none of SCRIPTS."""
    record, settings, world_size = run.record, run.settings, run.world_size
    script = next((word for word in record.command if word in SCRIPTS), None)
    if not (settings and world_size and script):
        raise InputError(f"{run.folder}/run.json: expected settings, ranks, and one of {', '.join(SCRIPTS)} as command")
    path = _config_path(exercise_folder(record.exercise), record.config) if record.config else None
    config = None
    if path and record.exercise == WEAK_SCALING:
        config = read_object(path)
    elif path:
        # Not whether its blocks are the model's: the run had them, from a file of this name.
        config = read_configuration(path, settings, world_size, reader(record.exercise, script)).values
    found = of_settings(settings, config, world_size, record.nodes or 1, script)
    if found.shape.pop("short_rows", 0) and run.steps is not None and run.steps.tokens.size:
        # How many packed rows were left at an epoch's end is known only from its steps.
        rows = int(run.steps.tokens.min()) // found.shape["max_length"]
        if 0 < rows < found.shape["batch_size"]:
            found.shape["short_rows"] = rows
    return found


def _short_rows(workload: Workload) -> int:
    """At most, of an epoch's last micro-batch, where that matters: compiled blocks run one of another size uncompiled.

    Several processes fill theirs up with rows of the epoch's begin: accelerate, BatchSamplerShard, even_batches.
    """
    size = workload.shape["batch_size"]
    if not workload.shape.get("compile") or workload.strategy.world_size > 1:
        return 0
    rows = workload.examples / workload.examples_per_row
    micro_batches = workload.max_steps * workload.strategy.accumulation or float("inf")
    if micro_batches <= rows // size:
        return 0
    return size - 1 if workload.packing else int(rows) % size


def reader(exercise: str, script: str | None) -> str:
    """The exercise's name for read_configuration: by-hand's scripts take different files."""
    return f"{exercise}/{script}" if exercise == BY_HAND else exercise


def _config_path(exercise: Path, name: str) -> Path | None:
    """The configuration of that name; None for one that is no JSON, as a sweep's."""
    # Not **, which follows no links: an exercise may link to another's configurations.
    places = [(exercise, place) for place in ("", "*/", "*/*/", "ds_")]
    places += [(ROOT, "*/ds_configs/"), (ROOT, "further/*/")]
    found = [path for folder, depth in places for path in sorted(folder.glob(f"{depth}{name}.json"))]
    return found[0].resolve() if found else None


def shape_name(settings: Mapping[str, Any]) -> str:
    """The model's name without its owner on the hub; a folder stays as it is."""
    name = settings["model_name"] or _GPT
    given = name if Path(name).exists() else short_name(name)
    # The name of a model in the hub's cache, of which there is no shape, stays whole.
    return name if model_path(name) and not model_path(given) else given


def head_size(config: Mapping[str, Any]) -> int:
    """Numbers in a query of one head; 0 where the configuration does not say."""
    heads = config.get("num_attention_heads") or config.get("n_head")
    return config.get("head_dim") or (config["hidden_size"] // heads if heads and "hidden_size" in config else 0)


def of_settings(
    settings: Mapping[str, Any], config: dict[str, Any] | None, world_size: int, nodes: int, script: str = TRAIN
) -> Workload:
    """Args: config: the launcher's JSON, of DeepSpeed or FSDP; None without one; script: one of SCRIPTS.

    Raises InputError for a strategy that there are no formulas for.
    """
    by_hand = script != TRAIN  # then nothing is evaluated or saved
    name = shape_name(settings)
    config = config or {}
    if AUTO in config.get("zero_optimization", {}).values():
        model = model_file(name) if name != _GPT else settings
        if not (hidden_size := model.get("hidden_size") or model.get("n_embd")):
            raise InputError(f'"auto" in zero_optimization follows from the hidden size, which {name} does not say')
        config = filled(config, hidden_size)
    if "replicas" in config:  # by-hand's name
        config = config | {"dp_replicate_size": config["replicas"]}
    zero = config.get("zero_optimization", {})
    given = {**config, **zero, **(zero.get("offload_optimizer") or {})}
    for key in ("data_types", "compile", "zenflow", "super_offload"):
        if given.get(key) not in (None, False):
            raise InputError(f"{key}: not planned; expected it left out")
    if settings.get("optimizer") == "muon":
        raise InputError("OPTIMIZER=muon: not planned; expected AdamW")
    precision = "fp16" if settings["fp16"] else "bf16" if settings["bf16"] else "fp32"
    method = _method(settings, config, world_size)
    moment_bytes = 2 if "8bit" in settings.get("optimizer", "") and not method.startswith("zero") else 8
    strategy = Strategy(method, world_size, settings["grad_acc"], precision != "fp32", config, moment_bytes)
    checkpointing = settings.get("gradient_checkpointing") or config.get("activation_checkpointing")
    shape: dict[str, Any] = {
        "model_name": name,
        "batch_size": settings["batch_size"],
        "max_length": settings["max_length"],
        "engine": "half" if method.startswith(("zero", "fsdp")) else "autocast",
        "precision": precision,
        "gradient_checkpointing": bool(checkpointing),
    }
    if name == _GPT:
        shape |= {"module": "custom_model.model", "sizes": {size: settings[size] for size in _GPT_SIZES}}
    if by_hand:
        shape["loss_outside"] = True
    switches = {switch: settings.get(switch) or usual for switch, usual in _USUAL.items()}
    if switches["attention"] == "auto":
        model, packed = model_file(name), bool(settings.get("packing"))
        kind = model.get("model_type", "")
        switches["attention"] = fastest_kernel(kind, head_size(model), packed, settings["max_length"])
    if (kernel := switches["attention"]) in _BESIDE_FLEX:
        switches["attention"] = "flex"
    if switches != _USUAL:
        # Of plain text every position has a target.
        labelled = switches.pop("logits") == "labelled" and not settings.get("dataset", "").endswith(".txt")
        positions = settings["batch_size"] * settings["max_length"]
        chunk = settings.get("loss_chunk") or LOSS_CHUNK
        shape |= switches | {"fast": True, "loss_chunk": chunk, "labelled": int(LABELLED_SHARE * positions * labelled)}
        if shape["compile"] and method == "ddp" and config.get("optimize_ddp", True):
            shape["ddp_bucket_mib"] = config.get("bucket_cap_mb", _DDP_BUCKET_MIB)
    if (adapted := settings.get("method", "full")) != "full":
        shape |= {"adapter_rank": settings["lora_rank"], "four_bits": adapted == "qlora"}
        shape |= {"adapter_dropout": float(settings["lora_dropout"]), "adapter_targets": settings["lora_targets"]}
    if (float8 := settings.get("float8") or "none") != "none":
        if precision != "bf16" or method.startswith("zero"):
            raise InputError(f"FLOAT8={float8}: expected BF16=true FP16=false, and FSDP2, DDP or one GPU")
        shape["float8"] = float8
    found = Workload(
        shape,
        strategy,
        nodes,
        dynamic_padding=settings.get("padding") == "dynamic",
        attention_share=_BESIDE_FLEX.get(kernel, 1),
        data_workers=bool(settings.get("data_workers")),
        examples=settings.get("train_size") or 0,
        epochs=settings.get("num_epochs") or 0,
        max_steps=settings.get("max_steps") or 0,
        eval_examples=0 if by_hand else settings.get("eval_size") or 0,
        generated=_generated(settings, world_size),
        packing=bool(settings.get("packing")),
        save="no" if by_hand else settings.get("save") or "no",
        save_steps=settings.get("save_steps") or 0,
        pretrained=settings.get("model_init") == "pretrained" and name != _GPT,
    )
    if rows := _short_rows(found):
        shape["short_rows"] = rows
    return found


def of_layout(model: dict[str, Any], layout: Layout, nodes: int, **about: Any) -> Workload:
    """Args: model: its part of the shape, and what replaces the layout's; about: other attributes of Workload."""
    # FSDP's copies, of which each has other matrices or layers; and as many passes through all layers as a rank's
    # micro-batches through its stage are.
    gpus, copies = layout.dp * layout.row_parts * layout.pp, layout.tp * layout.pp
    method, accumulation = "none" if layout.copies else "fsdp2", layout.micro_batches // layout.pp
    strategy = Strategy(method, gpus, accumulation, True, {"dp_replicate_size": copies})
    share = 1 if layout.cp > 1 else _BESIDE_FLEX["cudnn"]  # the library's over whole rows; the ring's is slower
    return Workload(layout.shape | model, strategy, nodes, attention_share=share, layout=layout, **about)


def _generated(settings: Mapping[str, Any], world_size: int) -> int:
    rows = world_size * (settings.get("eval_batch_size") or settings["batch_size"])
    held_out, trained_on = (settings.get(name) or 0 for name in ("generate_size", "generate_train_size"))
    return ceil(held_out / rows) * (1 + bool(settings.get("generate_before"))) + ceil(trained_on / rows)


def _method(settings: Mapping[str, Any], config: dict[str, Any], world_size: int) -> str:
    if "zero_optimization" in config:
        return f"zero{config['zero_optimization']['stage']}"
    if settings.get("use_fsdp") or config.get("fsdp", bool(config)):
        return f"fsdp{config.get('version', 2)}"
    return "ddp" if world_size > 1 else "none"  # of one rank the Trainer makes no DDP, whatever the configuration says
