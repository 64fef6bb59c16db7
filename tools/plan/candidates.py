"""A question, and every way to do its training on some GPUs.

A candidate is a configuration file, a micro-batch with as many accumulations as make up the batch, and with or without
checkpointing; or a layout.
"""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cache, cached_property
from itertools import product
from math import ceil, inf
from pathlib import Path
from typing import Any

from tools.errors import InputError
from tools.plan.gpus import Gpu, named
from tools.plan.layout import LOSS_CHUNK, Layout, splits
from tools.plan.predict import MEASURED_LENGTH, Prediction
from tools.plan.workload import EXAMPLES_PER_POSITION, SOCKETS_GB_PER_S, Workload
from tools.plan.workload_of import head_size, of_layout, of_settings
from tools.submit.submissions import read_argument
from tools.submit.submitted import read_as_job
from workshop.record.errors import read_json
from workshop.record.exercises import REPO
from workshop.settings.configuration import read_configuration
from workshop.settings.dimensions import why_not
from workshop.settings.model_file import SHAPES, check_weights, decoders, model_file, most_positions, weight_files
from workshop.settings.settings import Settings

FSDP = ("ddp", "full_shard", "shard_grad_op", "hybrid_shard")
FSDP += ("full_shard_offload", "shard_grad_op_offload", "hybrid_shard_offload")
ZERO = ("zero0", "zero1", "zero1_offload", "zero2", "zero2_offload", "zero3", "zero3_offload")
ADAPTERS = ("LoRA", "QLoRA")  # by the LoRA exercise's script
ADAPTER_RANK = 8
EIGHT_BITS = "8-bit"  # Adam's moments, by torchao, which takes sharded weights, too
PURE, PURE_8 = "bf16", "bf16, 8-bit"  # WEIGHTS=bf16, alone and with these moments
# The top of the speed ladder: packed rows, fused kernels, compiled blocks, logits of answers only; alone also a graph.
RUNGS = ("rung 12", "rung 13")
# By recipe the configurations that it is ranked with, and its settings; "" trains all weights with exact moments.
_SHARDED, _MOMENTS = ("", "ddp", "full_shard", "zero2", "zero3"), {"optimizer": "adamw_torch_8bit"}
_RECIPES: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    **{one: (_SHARDED, {"method": one.lower(), "lora_rank": ADAPTER_RANK}) for one in ADAPTERS},
    EIGHT_BITS: (("", "ddp", "full_shard", "shard_grad_op"), _MOMENTS),
    PURE: (("", "ddp"), {"weights": "bf16"}),
    PURE_8: (("", "ddp"), {"weights": "bf16"} | _MOMENTS),
    "rung 12": (("full_shard", "zero2"), {"rung": "12_documents"}),
    "rung 13": (("",), {"rung": "13_graph"}),
}
# Rows per GPU without --tokens: multi-GPU ZeRO's weak scaling.
ROWS_PER_GPU = 10_000
_MOST_TOKENS = 131_072  # in a micro-batch of several rows; more would be no faster
SQUAD_EXAMPLES = 87_599


@dataclass(frozen=True)
class Question:
    """About the training of a model; 0, "" and None: not said.

    Raises InputError for what no candidate can do, and for counts that no cluster of these GPUs has.
    """

    model: str
    gpus: int
    nodes: int
    gpu: str
    length: int = 512  # tokens per row
    batch: int = 16  # rows per GPU and optimizer step
    fabric_gb_per_s: float = SOCKETS_GB_PER_S
    tokens: float = 0  # to train on, padding included; else ROWS_PER_GPU rows
    node_gib: float | None = None  # CPU memory of a node; else the server's
    method: str = ""  # full, lora or qlora; else all
    config_file: str = ""  # a file of one's own
    largest: bool = False  # the largest micro-batches that fit, not the fastest
    packed: bool = False  # simulate the top rung and weights in bf16, too, which takes longer
    asked: str = ""  # the model's name on the hub, if it was asked by that

    # bf16 where the GPU has it: it needs no loss scale.
    precision = property(lambda self: "bf16" if "bf16" in self.hardware.peaks else "fp16")
    # The whole work, which is the same for all candidates, and its optimizer steps.
    work_tokens = property(lambda self: self.tokens or ROWS_PER_GPU * self.gpus * self.length)
    steps = property(lambda self: self.split(self.batch)[1])

    @cached_property
    def hardware(self) -> Gpu:
        return named(self.gpu, self.node_gib)

    @cached_property
    def content(self) -> dict[str, Any]:
        """The model's configuration; {} of an unknown model."""
        return model_file(self.model)

    def __post_init__(self) -> None:
        model, given = self.content, f"--model {self.model}"
        if not model:
            near = ", ".join(get_close_matches(self.model.rsplit("/", 1)[-1].lower(), ["tiny", *SHAPES], 3, 0))
            raise InputError(f"{given}: unknown; the nearest are {near}; or give a model's config.json, or its folder")
        kind = model.get("model_type")
        if kind not in (decoders() or {kind}):
            raise InputError(f"{given}: {kind} is no decoder of Transformers; expected a causal language model")
        if self.length > (most := most_positions(model) or self.length):
            raise InputError(f"--length {self.length}: {self.model} has {most} positions; expected at most that")
        for name in ("gpus", "nodes", "length", "batch"):
            if getattr(self, name) < 1:
                raise InputError(f"--{name} {getattr(self, name)}: expected at least 1")
        if not 0 <= self.tokens < inf:
            raise InputError(f"--tokens {self.tokens:g}: expected more than 0")
        given, kind = f"--gpus {self.gpus} --nodes {self.nodes}", self.hardware
        if self.gpus % self.nodes:
            raise InputError(f"{given}: expected as many GPUs on each node")
        if self.gpus // self.nodes > (most := kind.per_node):
            holds = f"a node of {kind.driver_name} holds {most}"
            raise InputError(f"{given}: {holds}; expected at most {most}, or more --nodes")
        if "model_init" not in self.settings(1):  # pretrained
            check_weights(self.model)

    def split(self, rows: int) -> tuple[int, int]:
        """With so many rows in a micro-batch: how many are accumulated, and the optimizer steps of the whole work."""
        accumulation = ceil(self.batch / rows)
        return accumulation, ceil(self.work_tokens / (rows * accumulation * self.gpus * self.length))

    def settings(self, examples: int) -> dict[str, Any]:
        """The settings that all candidates share, under run.json's names. Args: examples: of the whole work."""
        hub_name = self.asked or self.content.get("_name_or_path")
        known = hub_name and not Path(self.model).exists() and "_text_of" not in self.content
        found = {"model_name": hub_name if known else self.model}
        if not known and not weight_files(Path(self.model)):
            found["model_init"] = "random"
        length = {"train_size": min(SQUAD_EXAMPLES, examples), "max_steps": self.steps, "max_length": self.length}
        return found | length


@dataclass(frozen=True)
class Candidate:
    """One way to do the training."""

    strategy: str  # the configuration's or the layout's name
    workload: Workload
    settings: dict[str, Any]  # of the run, by run.json's names
    launcher: str  # with its exercise
    argument: str = ""  # of the launcher
    prediction: Prediction | None = None  # None until it is ranked, and where it cannot be simulated
    written: dict[str, Any] | None = None  # what has to be written into the configuration; None: it is shipped
    recipe: str = ""  # of _RECIPES; "": all weights are trained, exactly
    error: str = ""  # why it cannot be simulated

    checkpointing = property(lambda self: self.workload.shape["gradient_checkpointing"])
    micro_batches = property(lambda self: self.workload.micro_batches)
    verdict = property(lambda self: self.prediction.verdict if self.prediction else "unknown")
    gpu_hours = property(lambda self: self.prediction.ranges["gpu_hours"].expected)
    trains = property(lambda self: "adapters" if self.recipe in ADAPTERS else "all weights")
    line = property(lambda self: self.command())

    @property
    def name(self) -> str:
        checkpointing = ", checkpointing" if self.checkpointing else ""
        return f"{self.strategy}{checkpointing}, {self.micro_batches} rows"

    def command(self, *asked: str) -> str:
        """The line as `submit` takes it; with `asked`, options of sbatch, the command to type."""
        nodes = [f"--nodes={self.workload.nodes}"] if self.workload.nodes > 1 else []
        sbatch = ["sbatch", *asked] if asked else []
        return self._line(*sbatch, *nodes, f"--gpus-per-node={self.workload.ranks_per_node}")

    def without_slurm(self) -> str:
        """The command to type on one node without SLURM; "" for several nodes."""
        return self._line(f"GPUS_PER_NODE={self.workload.ranks_per_node}", "bash") if self.workload.nodes == 1 else ""

    def _line(self, *between: str) -> str:
        words = []
        for name, value in self.settings.items():
            words.append(f"{name.upper()}={str(value).lower() if isinstance(value, bool) else value}")
        return shlex.join([*words, *between, *filter(None, [self.launcher, self.argument])])


def candidates(question: Question, recipes: Sequence[str] = ("",)) -> Iterator[Candidate]:
    """All weights are trained, with exact moments, or by one of the recipes.

    Raises InputError if the job would refuse a configuration of one's own.
    """
    # Micro-batches that divide the batch, each the largest up to half of the one before: 16, 8, 4, 2, 1.
    every = [question.batch]
    while every[-1] > 1:
        every.append(next(size for size in range(every[-1] // 2, 0, -1) if question.batch % size == 0))
    if question.length > MEASURED_LENGTH:
        every = [size for size in every if size <= max(1, _MOST_TOKENS // question.length)]
    # Compiled blocks take seconds each: not with checkpointing, nor with each micro-batch.
    rungs = question.nodes == 1 and question.length <= MEASURED_LENGTH
    for launcher, name in _configurations(question):
        accepted, refused = [], None
        own = [one for one in recipes if not one or name in _RECIPES[one][0]]
        for rows, checkpointing, recipe in product(every, (False, True), own):
            top = rungs and rows in every[::2] and (question.gpus > 1 or not name) and not checkpointing
            if recipe in RUNGS and not top:
                continue
            try:
                accepted.append(_candidate(question, launcher, name, rows, checkpointing, recipe))
            except InputError as error:  # a file of one's own may have one micro-batch; adapters need bf16
                refused = error
        if refused and not accepted and name == question.config_file != "":
            raise refused
        yield from accepted


def _configurations(question: Question) -> Iterator[tuple[str, str]]:
    """Each with its launcher; "": the launcher takes none."""
    fsdp, zero = ("fsdp/multi_gpu.slurm", FSDP), ("deepspeed-multi-gpu/deepspeed.slurm", ZERO)
    if question.gpus == 1:
        yield "baseline/baseline.slurm", ""
        fsdp, zero = ("fsdp/single_gpu.slurm", ()), ("deepspeed-single-gpu/deepspeed.slurm", ZERO)
    elif question.nodes > 1:
        fsdp = "fsdp/multi_node.slurm", FSDP
    own = question.config_file and ("zero" if "zero_optimization" in read_json(Path(question.config_file)) else "fsdp")
    for kind, (launcher, names) in (("fsdp", fsdp), ("zero", zero)):
        for name in (*names, question.config_file) if own == kind else names:
            # Two replicas of fewer ranks would leave none to share among.
            if not name.startswith("hybrid") or (question.gpus >= 4 and question.gpus % 2 == 0):
                yield launcher, name


def layouts(question: Question) -> Iterator[Candidate]:
    """For long rows, those that a script of further/dimensions/ runs for this model, with and without checkpointing."""
    model, length = question.content, question.length
    keys, layers = (model.get(f"num_{name}", 0) for name in ("key_value_heads", "hidden_layers"))
    if length <= MEASURED_LENGTH or not keys or question.precision != "bf16":
        return
    settings = question.settings(question.steps * question.gpus * question.batch)
    about = {"pretrained": "model_init" not in settings, "max_steps": question.steps}
    about["fabric_gb_per_s"] = question.fabric_gb_per_s
    sizes, tied = (model["hidden_size"], keys * head_size(model)), model.get("tie_word_embeddings", False)
    for (dp, tp, cp, pp), checkpointing in product(splits(question.gpus), (False, True)):
        layout = Layout(dp, tp, cp, pp, length, question.batch * question.gpus // dp, *sizes, checkpointing, tied)
        name, ranks = layout.dimension, layout.sizes[layout.dimension]
        if length % (2 * cp * tp) or pp > layers or why_not(name, model, length, ranks):
            continue
        workload = of_layout({"model_name": question.model}, layout, question.nodes, **about)
        own = {"batch_size": 1, "grad_acc": layout.micro_batches, f"{name}_size": ranks}
        own |= {"sequence_parallel": True} if name == "tp" else {}
        own |= {"gradient_checkpointing": True} if checkpointing else {}
        own["loss_chunk"] = LOSS_CHUNK
        yield Candidate(layout.name, workload, settings | own, "further/dimensions/dimensions.slurm", f"{name}.py")


def _candidate(
    question: Question, launcher: str, name: str, micro_batch: int, checkpointing: bool, recipe: str
) -> Candidate:
    of_fsdp, own = launcher.startswith("fsdp/"), name == question.config_file != ""
    if recipe in ADAPTERS:
        launcher = "further/lora/lora.slurm"
    elif recipe in RUNGS:
        launcher = f"further/speed-ladder/ladder{'_torchrun' if of_fsdp else '_deepspeed' if name else ''}.slurm"
    argument = f"{'fsdp_configs' if of_fsdp else 'ds_configs'}/{name}.json"
    path = Path(name).absolute() if own else ((REPO / launcher).parent / argument).resolve()
    shipped = read_json(path) if name else {}
    config = dict(shipped)
    accumulation, optimizer_steps = question.split(micro_batch)
    settings = question.settings(optimizer_steps * question.gpus * micro_batch * accumulation)
    settings |= {"batch_size": micro_batch, "grad_acc": accumulation, "max_steps": optimizer_steps}
    settings |= {"fp16": question.precision == "fp16", "bf16": question.precision == "bf16"}
    if of_fsdp and shipped.get("fsdp", True):
        if not own and not question.model.startswith("bloom"):
            config.pop("transformer_layer_cls_to_wrap", None)  # then the library names the blocks
        if checkpointing:  # the configuration says it: settings/fsdp_config.py
            config["activation_checkpointing"] = config.get("activation_checkpointing") or True
    elif checkpointing:
        settings["gradient_checkpointing"] = True
    if recipe in RUNGS:
        examples = settings["train_size"] * EXAMPLES_PER_POSITION * question.length
        settings["train_size"] = min(SQUAD_EXAMPLES, ceil(examples))
    if recipe:
        settings |= _RECIPES[recipe][1]
    # The simulated shape has the model's own name, the command the hub's.
    named = {"model_name": question.model, "config": str(path) if name else ""}
    given = _launcher_settings(f"RUNG={settings['rung']} {launcher}" if recipe in RUNGS else launcher)
    used, trained = replace(given, **settings | named), None
    used.check()
    if name:
        found = read_configuration(path, vars(used), question.gpus, content=config)
        used.check_with(found)
        trained = found.values
    workload = of_settings(vars(used), trained, question.gpus, question.nodes)
    workload = replace(workload, fabric_gb_per_s=question.fabric_gb_per_s)
    # With its ending a file of one's own is not taken for the shipped one of its name.
    strategy = path.name if own else name or "one GPU"
    if recipe in (*ADAPTERS, *RUNGS):
        strategy = f"{recipe} {strategy}"
    elif recipe:
        strategy += f", {recipe}"
    written = config if config != shipped else None
    if written:
        argument = "planned.json"
    elif own or not name:
        argument = str(path) if own else ""
    return Candidate(strategy, workload, settings, launcher, argument, written=written, recipe=recipe)


@cache
def _launcher_settings(launcher: str) -> Settings:
    """The settings of a launcher, with its exercise, to which nothing is added."""
    return read_as_job(read_argument(launcher, {}))[0]
