"""The workload of a recorded run, of the settings that `submit` finds for a line (tools/submit), and of a layout.

Settings have run.json's names.
"""

from collections.abc import Mapping
from functools import cache
from math import inf
from pathlib import Path
from typing import Any

from tools.errors import InputError
from tools.logs.run import Run
from tools.plan.layout import LOSS_CHUNK, Layout
from tools.plan.workload import EXAMPLES_PER_POSITION, Strategy, Workload
from tools.tables.table import exercise_folder
from workshop.record.errors import read_json
from workshop.record.exercises import REPO, declared
from workshop.settings.attention import fastest_kernel
from workshop.settings.configuration import read_configuration
from workshop.settings.deepspeed_config import filled
from workshop.settings.json_file import AUTO
from workshop.settings.model_file import SHAPES, base_name, model_file, model_path, short_name

TRAIN = "train.py"  # what is simulated: training with the Trainer
# custom_model's; its name is a default of its settings there.
_GPT = "simple-gpt"
_GPT_SIZES = ("vocab_size", "hidden_size", "num_layers", "num_heads", "ff_dim", "seq_length")
# The ladder's switches that change the model, and their values in the library's own way.
_USUAL = {"attention": "eager", "loss": "full", "stream": "fp32", "logits": "all", "packing": False, "compile": False}
# Kernels that keep what flex_attention keeps, and their time beside its on an H200 (further/speed-ladder/RESULTS.md).
_BESIDE_FLEX = {"documents": 0.47, "cudnn": 0.73}
# Filled share of rows that are padded to the longest of their micro-batch: steps.csv of rung 3 in logs/reference,
# 16 rows of at most 512 positions of SQuAD: 5,008 of 8,192.
DYNAMIC_SHARE = 0.61
# torch/nn/parallel/distributed.py, bucket_cap_mb's default.
_DDP_BUCKET_MIB = 25
# Positions whose next token is a target, of all positions of packed rows: the most in a step of any reference run
# (logit_positions / tokens of steps.csv, rungs 11 of logs/reference: 0.0305 to 0.0347).
LABELLED_SHARE = 0.0335
# A CUDA graph computes as many in each micro-batch as the rows with the most have. This is the share of the top 64 of
# 2,781 packed rows: 8,000 examples of SQuAD, GPT-2's tokenizer. Of 4,000 examples it is 0.059.
_GRAPH_SHARE = 0.09


def of_run(run: Run) -> Workload:
    """The workload of a recorded run. Raises InputError if it lacks settings or ranks, or did not run TRAIN."""
    record, settings, world_size = run.record, run.settings, run.world_size
    if not (settings and world_size and TRAIN in record.command):
        raise InputError(f"{run.folder}/run.json: expected settings, ranks, and {TRAIN} as command")
    config = None
    if record.config and (path := _config_path(folder := exercise_folder(record.exercise), record.config)):
        takes = declared(folder).takes(TRAIN)
        if takes == "rule":
            config = read_json(path)
        else:  # not whether its blocks are the model's: the run had them, from a file of this name
            config = read_configuration(path, settings, world_size, takes, declared(folder).trainer).values
    found = of_settings(settings, config, world_size, record.nodes or 1)
    if found.shape.pop("short_rows", 0) and (steps := run.steps):
        # How many packed rows were left at an epoch's end is known only from its steps.
        rows = int(min(steps.tokens)) // found.shape["max_length"]
        if 0 < rows < found.shape["batch_size"]:
            found.shape["short_rows"] = rows
    return found


def _config_path(exercise: Path, name: str) -> Path | None:
    """The configuration of that name; None for one that is no JSON, as a sweep's."""
    # Not **, which follows no links: an exercise may link to another's configurations.
    places = [(exercise, ""), (exercise, "*/"), (exercise, "*/*/"), (REPO, "*/ds_configs/"), (REPO, "further/*/")]
    found = [path for folder, depth in places for path in sorted(folder.glob(f"{depth}{name}.json"))]
    return found[0].resolve() if found else None


@cache
def hub_names() -> dict[str, str]:
    """Shapes by base_name on the hub, which may call them otherwise: Qwen/Qwen2.5-7B is qwen-2.5-7b."""
    return {base_name(model_file(shape).get("_name_or_path", shape)): shape for shape in SHAPES}


def shape_name(settings: Mapping[str, Any]) -> str:
    """The model's name without its owner on the hub, or its shape's; a folder whole: it is simulated from elsewhere."""
    name = settings["model_name"] or _GPT
    if Path(name).exists():
        return str(Path(name).resolve())
    if settings.get("model_init") == "pretrained" and (shape := hub_names().get(base_name(name))):
        return shape
    given = short_name(name)
    # The name of a model in the hub's cache, of which there is no shape, stays whole.
    return name if model_path(name) and not model_path(given) else given


def head_size(config: Mapping[str, Any]) -> int:
    """Numbers in a query of one head; 0 where the configuration does not say."""
    heads = config.get("num_attention_heads") or config.get("n_head")
    return config.get("head_dim") or (config["hidden_size"] // heads if heads and "hidden_size" in config else 0)


def of_settings(settings: Mapping[str, Any], config: dict[str, Any] | None, world_size: int, nodes: int) -> Workload:
    """Args: config: the launcher's JSON, of DeepSpeed or FSDP; None without one.

    Raises InputError for a strategy that there are no formulas for.
    """
    name, config = shape_name(settings), _planned(config or {}, settings)
    precision = "fp16" if settings["fp16"] else "bf16" if settings["bf16"] else "fp32"
    sharding = _sharding(settings, config, world_size)
    weight_bytes = 2 if settings.get("weights") == "bf16" else 4
    in_8_bits = "8bit" in settings.get("optimizer", "") and not sharding.startswith("zero")
    states = {"moment_bytes": 2 if in_8_bits else 2 * weight_bytes, "weight_bytes": weight_bytes}
    strategy = Strategy(sharding, world_size, settings["grad_acc"], precision != "fp32", config, **states)
    checkpointing = settings.get("gradient_checkpointing") or config.get("activation_checkpointing")
    shape: dict[str, Any] = {
        "model_name": name,
        "batch_size": settings["batch_size"],
        "max_length": settings["max_length"],
        "engine": "half" if sharding.startswith(("zero", "fsdp")) else "autocast",
        "precision": precision,
        "gradient_checkpointing": bool(checkpointing),
    }
    if weight_bytes == 2:
        shape["weights"] = "bf16"
    if name == _GPT:
        shape |= {"module": "custom_model.model", "sizes": {size: settings[size] for size in _GPT_SIZES}}
    if (adapted := settings.get("method", "full")) != "full":
        shape |= {"adapter_rank": settings["lora_rank"], "four_bits": adapted == "qlora"}
        shape |= {"adapter_dropout": float(settings["lora_dropout"]), "adapter_targets": settings["lora_targets"]}
    kernel = _add_switches(shape, settings, strategy)
    packing, examples = settings.get("packing"), settings.get("train_size") or 0
    examples_per_row = EXAMPLES_PER_POSITION * shape["max_length"] if packing else 1
    found = Workload(
        shape,
        strategy,
        nodes,
        filled=DYNAMIC_SHARE if settings.get("padding") == "dynamic" else 1,
        attention_share=_BESIDE_FLEX.get(kernel, 1),
        data_workers=bool(settings.get("data_workers")),
        cuda_graph=bool(settings.get("cuda_graph")),
        examples=examples,
        epochs=settings.get("num_epochs") or 0,
        max_steps=settings.get("max_steps") or 0,
        eval_examples=settings.get("eval_size") or 0,
        examples_per_row=examples_per_row,
        save=settings.get("save") or "no",
        save_steps=settings.get("save_steps") or 0,
        pretrained=settings.get("model_init") == "pretrained" and name != _GPT,
    )
    # An epoch's last micro-batch matters where compiled blocks run one of another size uncompiled. Several processes
    # fill theirs up with rows of the epoch's begin: accelerate, BatchSamplerShard, even_batches.
    size, rows = shape["batch_size"], examples / examples_per_row
    micro_batches = found.max_steps * strategy.accumulation or inf
    short = size - 1 if packing else int(rows) % size  # of packed rows at most so many
    if short and shape.get("compile") and world_size == 1 and micro_batches > rows // size:
        shape["short_rows"] = short
    return found


def _add_switches(shape: dict[str, Any], settings: Mapping[str, Any], strategy: Strategy) -> str:
    """Add the speed ladder's switches to the shape, where one is not the library's own. Returns attention's kernel."""
    switches = {switch: settings.get(switch) or usual for switch, usual in _USUAL.items()}
    kernel, rows, length = switches["attention"], shape["batch_size"], shape["max_length"]
    if kernel == "auto":
        model = model_file(shape["model_name"])
        kernel = fastest_kernel(model.get("model_type", ""), head_size(model), bool(switches["packing"]), length)
    switches["attention"] = "flex" if kernel in _BESIDE_FLEX else kernel
    if switches != _USUAL:
        # Of plain text every position has a target.
        labelled = switches.pop("logits") == "labelled" and not settings.get("dataset", "").endswith(".txt")
        shape |= switches | {"fast": True, "loss_chunk": settings.get("loss_chunk") or LOSS_CHUNK}
        share = _GRAPH_SHARE if settings.get("cuda_graph") else LABELLED_SHARE
        shape["labelled"] = int(share * rows * length * labelled)
        if switches["compile"] and strategy.sharding == "ddp" and strategy.config.get("optimize_ddp", True):
            shape["ddp_bucket_mib"] = strategy.config.get("bucket_cap_mb", _DDP_BUCKET_MIB)
    return kernel


def _planned(config: dict[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration with numbers for "auto". Raises InputError for what there are no formulas for."""
    zero = config.get("zero_optimization", {})
    for key in ("data_types", "compile"):
        if config.get(key) not in (None, False):
            raise InputError(f"{key}: not planned; expected it left out")
    if config.get("reshard_after_forward") == "no_shard":
        raise InputError('reshard_after_forward no_shard: not planned; expected "fsdp": false, which shards as little')
    for name, usual in (("optimizer", "adamw"), ("float8", "none")):
        if not (settings.get(name) or usual).startswith(usual):
            raise InputError(f"{name.upper()}={settings[name]}: not planned; expected {usual}")
    if AUTO in zero.values():
        name = shape_name(settings)
        model = model_file(name) if name != _GPT else settings
        if not (hidden_size := model.get("hidden_size") or model.get("n_embd")):
            raise InputError(f'"auto" in zero_optimization follows from the hidden size, which {name} does not say')
        config = filled(config, hidden_size)
    return config


def of_layout(model: dict[str, Any], layout: Layout, nodes: int, **about: Any) -> Workload:
    """Args: model: its part of the shape, and what replaces the layout's; about: other attributes of Workload."""
    # FSDP's copies, of which each has other matrices or layers; and as many passes through all layers as a rank's
    # micro-batches through its stage are.
    gpus, copies = layout.dp * layout.row_parts * layout.pp, layout.tp * layout.pp
    sharding, accumulation = "none" if layout.copies else "fsdp2", layout.micro_batches // layout.pp
    strategy = Strategy(sharding, gpus, accumulation, True, {"dp_replicate_size": copies})
    share = 1 if layout.cp > 1 else _BESIDE_FLEX["cudnn"]  # the library's over whole rows; the ring's is slower
    return Workload(layout.shape | model, strategy, nodes, attention_share=share, layout=layout, **about)


def _sharding(settings: Mapping[str, Any], config: dict[str, Any], world_size: int) -> str:
    if "zero_optimization" in config:
        return f"zero{config['zero_optimization']['stage']}"
    if settings.get("use_fsdp") or config.get("fsdp", bool(config)):
        return f"fsdp{config.get('version', 2)}"
    return "ddp" if world_size > 1 else "none"  # of one rank the Trainer makes no DDP, whatever the configuration says
