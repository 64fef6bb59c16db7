"""Which strategy: a question, every way to do its training on some GPUs, and which of them is best.

A candidate is a configuration file, a micro-batch with as many accumulations as make up the batch, and with or without
checkpointing. All of them are predicted from the same few simulated micro-batches. Per configuration the fastest that
fits is shown, or why none does.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil, inf
from pathlib import Path
from textwrap import indent
from typing import Any

from tools.errors import InputError
from tools.logs.mfu import PEAK_TFLOPS
from tools.logs.run import read_object
from tools.plan.constants import NOISE
from tools.plan.gpus import Gpu, named
from tools.plan.layout import LOSS_CHUNK, Layout, splits
from tools.plan.predict import TITLES, Prediction, Range, first_choice, predict
from tools.plan.simulate import without_errors
from tools.plan.submitted_lines import exercise_settings, read_values
from tools.plan.workload import (
    PACKED_EXAMPLES_PER_POSITION,
    SOCKETS_GB_PER_S,
    Workload,
    head_size,
    of_layout,
    of_settings,
)
from tools.tables.repository import ROOT
from workshop.run_folder.model_file import SHAPES, model_file
from workshop.run_folder.plural import counted
from workshop.run_folder.printable import markdown

FSDP = ("ddp", "full_shard", "shard_grad_op", "hybrid_shard")
FSDP_OFFLOAD = ("full_shard_offload", "shard_grad_op_offload", "hybrid_shard_offload")
ZERO = ("zero0", "zero1", "zero1_offload", "zero2", "zero2_offload", "zero3", "zero3_offload")
# By method of further/lora/: whether the frozen weights have 4 bits. Then the adapters' rank.
ADAPTERS = {"LoRA": False, "QLoRA": True}
ADAPTER_RANK = 8
# Rows per GPU without --tokens: exercise 3's weak scaling.
ROWS_PER_GPU = 10_000
# The longest rows of a reference run.
MEASURED_LENGTH = 4_096
_MOST_TOKENS = 131_072  # in a micro-batch of several rows; more would be no faster
NO_SCRIPT = "no script here runs it"
_LAYOUT_TITLES = ("sent in a node (MiB per rank)", "between nodes (MiB per node)", "stages wait (%)", "runs in")
SQUAD_EXAMPLES = 87_599
# SLURM tells a job two minutes before its limit that it ends: #SBATCH --signal of the launchers.
_SIGNAL_MINUTES = 2


@dataclass(frozen=True)
class Question:
    """Attributes: length: tokens per row; batch: rows per GPU and optimizer step; rung: of the speed ladder, or "";
    tokens: to train on, padding included; 0: ROWS_PER_GPU rows; node_gib: CPU memory of a node; None: the server's.
    """

    model: str
    gpus: int
    nodes: int
    gpu: str
    length: int = 512
    batch: int = 16
    rung: str = ""
    fabric_gb_per_s: float = SOCKETS_GB_PER_S
    tokens: float = 0
    node_gib: float | None = None

    @property
    def hardware(self) -> Gpu:
        return named(self.gpu, self.node_gib)

    @property
    def gpus_per_node(self) -> int:
        return self.gpus // self.nodes

    @property
    def tokens_per_step(self) -> int:
        return self.gpus * self.batch * self.length

    @property
    def long(self) -> bool:
        """Whether layouts are ranked beside the strategies."""
        return self.length > MEASURED_LENGTH

    @property
    def steps(self) -> int:
        """Optimizer steps of the whole work, which is the same for all candidates."""
        return ceil((self.tokens or ROWS_PER_GPU * self.gpus * self.length) / self.tokens_per_step)

    def check(self) -> None:
        """Raises InputError for an unknown model, and for counts that no cluster of these GPUs has."""
        known = ["tiny", *sorted(path.stem for path in SHAPES.glob("*.json"))]
        if self.model not in known and not Path(self.model, "config.json").is_file():
            raise InputError(
                f"--model {self.model}: unknown; expected one of {', '.join(known)}; or add another "
                "model's config.json of the hub as workshop/shapes/NAME.json, or give a folder that has one"
            )
        if has_experts(self.model):
            raise InputError(f"--model {self.model}: has experts, which are not planned; expected a model without")
        for name in ("gpus", "nodes", "length", "batch"):
            if getattr(self, name) < 1:
                raise InputError(f"--{name} {getattr(self, name)}: expected at least 1")
        if not 0 <= self.tokens < inf:
            raise InputError(f"--tokens {self.tokens:g}: expected more than 0")
        if not self.fabric_gb_per_s > 0:  # nor what is no number
            raise InputError(f"--fabric {self.fabric_gb_per_s:g}: expected more than 0 GB/s")
        if self.gpus % self.nodes:
            raise InputError(f"--gpus {self.gpus} --nodes {self.nodes}: expected as many GPUs on each node")
        if self.gpus_per_node > (most := self.hardware.per_node):
            raise InputError(
                f"--gpus {self.gpus} --nodes {self.nodes}: a node of {self.hardware.driver_name} holds {most}; "
                f"expected at most {most}, or more --nodes"
            )

    @property
    def precision(self) -> str:
        """bf16 where the GPU has it: it needs no loss scale."""
        return "bf16" if "bf16" in PEAK_TFLOPS[self.hardware.driver_name] else "fp16"

    def settings(self, examples: int) -> dict[str, Any]:
        """The settings that all candidates share, under run.json's names. Args: examples: of the whole work."""
        hub_name = "" if Path(self.model, "config.json").is_file() else model_file(self.model).get("_name_or_path")
        found: dict[str, Any] = {"rung": self.rung} if self.rung else {}
        found["model_name"] = hub_name or self.model
        if not hub_name:  # no weights on the hub are known
            found["model_init"] = "random"
        size = min(SQUAD_EXAMPLES, examples)
        return found | {"train_size": size, "max_steps": self.steps, "max_length": self.length}


@dataclass(frozen=True)
class Command:
    """Starts a run. Attributes: settings: by run.json's names; launcher: with its exercise; argument: its argument."""

    settings: dict[str, Any]
    nodes: int
    gpus_per_node: int
    launcher: str
    argument: str = ""

    def text(self, *asked: str) -> str:
        """The line as `submit` takes it; with `asked`, options of sbatch, the command to type, in two lines."""
        words = [f"{name.upper()}={_word(value)}" for name, value in self.settings.items()]
        started = [f"--nodes={self.nodes}"] * (self.nodes > 1) + [f"--gpus-per-node={self.gpus_per_node}"]
        started += [self.launcher] + [self.argument] * bool(self.argument)
        if asked:
            return f"{shlex.join(words)} \\\n  sbatch {shlex.join([*asked, *started])}"
        return shlex.join([*words, *started])


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(frozen=True)
class Candidate:
    """One way to do the training.

    Attributes:
        strategy: the configuration's or the layout's name.
        command: None: a layout that no script here runs.
        prediction: None until it is ranked.
        config: what has to be in the configuration; changed: the shipped file of that name has something else.
        method: of ADAPTERS; "": all weights are trained.
    """

    strategy: str
    command: Command | None
    workload: Workload
    prediction: Prediction | None = None
    config: dict[str, Any] | None = None
    changed: bool = False
    method: str = ""

    @property
    def line(self) -> str:
        return self.command.text() if self.command else ""

    @property
    def micro_batches(self) -> str:
        if self.workload.layout:
            return f"1 x {self.workload.layout.micro_batches}"
        return f"{self.workload.shape['batch_size']} x {self.workload.strategy.accumulation}"

    @property
    def traffic(self) -> dict[str, Any]:
        """MiB that a rank sends in its node and a node to others, the share of a step that stages wait, the script."""
        in_node, between_nodes = (round(size / 2**20, 1) for size in self.prediction.traffic)
        bubble = self.workload.layout.bubble if self.workload.layout else 0
        runs_in = NO_SCRIPT
        if self.command:
            runs_in = f"{self.command.launcher} {self.workload.layout.script if self.workload.layout else ''}".strip()
        found = {"sent_in_node_mib": in_node, "sent_between_nodes_mib": between_nodes, "bubble": round(bubble, 4)}
        return found | {"runs_in": runs_in}

    @property
    def checkpointing(self) -> bool:
        return self.workload.shape["gradient_checkpointing"]

    @property
    def hours_per_billion(self) -> Range:
        """GPU-hours of 10^9 tokens, without the start of a job."""
        workload = self.workload
        gpus = workload.strategy.world_size
        return self.prediction.ranges["step_time_s"].times(gpus / 3600 * 1e9 / workload.tokens_per_step)


def rank(question: Question) -> list[Candidate]:
    """All candidates, predicted: the first choice, then by their speed. A script here runs the first, if one fits.

    The last two are the first choices of LoRA and of QLoRA: other trainings, so neither is the first of all.

    Raises:
        InputError: an unknown model, or a shape that cannot be simulated.
    """
    question.check()
    found = [*candidates(question), *layouts(question), *adapters(question)]
    predictions = without_errors(predict([one.workload for one in found], question.hardware, all_or_none=True))
    every = [replace(one, prediction=prediction) for one, prediction in zip(found, predictions, strict=True)]
    every.sort(key=lambda one: one.prediction.sort_key[:2])
    of_method = {name: [one for one in every if one.method == name] for name in ("", *ADAPTERS)}
    ranked = of_method.pop("")
    best = [some[first_choice([one.prediction.sort_key for one in some])] for some in of_method.values()]
    runnable = [one for one in ranked if one.command and one.prediction.verdict == ranked[0].prediction.verdict]
    options = runnable or ranked
    first = options[first_choice([one.prediction.sort_key for one in options])]
    ranked.remove(first)
    return [first, *ranked, *best]


def best_of_each(ranked: list[Candidate]) -> list[Candidate]:
    """The first of each configuration."""
    firsts: dict[str, Candidate] = {}
    for one in ranked:
        firsts.setdefault(one.strategy, one)
    return list(firsts.values())


def candidates(question: Question) -> Iterator[Candidate]:
    for launcher, names in _launchers(question):
        for name in names:
            if name.startswith("hybrid") and (question.gpus < 4 or question.gpus % 2):
                continue  # its two replicas would leave no ranks to share among
            for micro_batch in _micro_batches(question.batch):
                if question.long and micro_batch > 1 and micro_batch * question.length > _MOST_TOKENS:
                    continue
                # The ladder's rungs have no checkpointing: further/speed-ladder/ladder_settings.py.
                for checkpointing in (False,) if question.rung else (False, True):
                    yield _candidate(question, launcher, name, micro_batch, checkpointing)


def adapters(question: Question) -> Iterator[Candidate]:
    """The same with LoRA and QLoRA, on one GPU, under DDP and FSDP2: exercise 12's script trains adapters only."""
    for one in candidates(question):
        if one.strategy in ("one GPU", "ddp", "full_shard"):
            for method, four_bits in ADAPTERS.items():
                settings = one.command.settings | {"method": method.lower(), "lora_rank": ADAPTER_RANK}
                shape = one.workload.shape | {"adapter_rank": ADAPTER_RANK, "four_bits": four_bits}
                yield replace(
                    one,
                    strategy=f"{method} {ADAPTER_RANK}, {one.strategy}",
                    command=replace(one.command, settings=settings, launcher="further/lora/lora.slurm"),
                    workload=replace(one.workload, shape=shape),
                    method=method,
                )


def layouts(question: Question) -> Iterator[Candidate]:
    """For long rows of a decoder like Llama, with and without checkpointing."""
    model = model_file(question.model)
    keys, layers = (model.get(f"num_{name}", 0) for name in ("key_value_heads", "hidden_layers"))
    if not question.long or not keys or question.precision != "bf16":
        return
    for dp, tp, cp, pp, chunks in splits(question.gpus):
        if keys % tp == 0 and question.length % (2 * cp * tp) == 0 and chunks * pp <= layers:
            rows = question.batch * question.gpus // dp
            sizes = (question.length, rows, model["hidden_size"], keys * head_size(model))
            for checkpointing in (False, True):
                layout = Layout(dp, tp, cp, pp, chunks, *sizes, checkpointing, model.get("tie_word_embeddings", False))
                yield _with_layout(question, layout)


def _with_layout(question: Question, layout: Layout) -> Candidate:
    settings = question.settings(question.steps * question.gpus * question.batch)
    about = {"pretrained": "model_init" not in settings, "max_steps": question.steps}
    about["fabric_gb_per_s"] = question.fabric_gb_per_s
    workload = of_layout({"model_name": question.model}, layout, question.nodes, **about)
    if not layout.script:
        return Candidate(layout.name, None, workload)
    dimension = layout.script.removesuffix(".py")
    settings |= {"batch_size": 1, "grad_acc": layout.micro_batches, f"{dimension}_size": layout.sizes[dimension]}
    settings |= {"sequence_parallel": True} if dimension == "tp" else {}
    settings |= {"schedule": "interleaved"} if layout.chunks > 1 else {}
    settings |= {"gradient_checkpointing": True} if layout.checkpointing else {}
    settings["loss_chunk"] = LOSS_CHUNK
    launched = (question.nodes, question.gpus_per_node, "further/dimensions/dimensions.slurm", layout.script)
    return Candidate(layout.name, Command(settings, *launched), workload)


def _launchers(question: Question) -> list[tuple[str, tuple[str, ...]]]:
    """Each with its configurations."""
    several = question.gpus > 1
    if question.rung:
        fsdp = ("ladder_torchrun", FSDP + FSDP_OFFLOAD) if several else ("ladder", ("",))
        return [(f"further/speed-ladder/{name}.slurm", names) for name, names in (fsdp, ("ladder_deepspeed", ZERO))]
    if not several:
        return [("baseline/baseline.slurm", ("",)), ("deepspeed-single-gpu/deepspeed.slurm", ZERO)]
    fsdp_launcher = f"fsdp/{'multi_gpu' if question.nodes == 1 else 'multi_node'}.slurm"
    return [(fsdp_launcher, FSDP + FSDP_OFFLOAD), ("deepspeed-multi-gpu/deepspeed.slurm", ZERO)]


def _micro_batches(batch: int) -> list[int]:
    """The micro-batches that divide the batch, each the largest up to half of the one before: 16, 8, 4, 2, 1."""
    found = [batch]
    while found[-1] > 1:
        found.append(next(size for size in range(found[-1] // 2, 0, -1) if batch % size == 0))
    return found


def _candidate(question: Question, launcher: str, name: str, micro_batch: int, checkpointing: bool) -> Candidate:
    exercise = (ROOT / launcher).parent
    fsdp, rung = name in (*FSDP[1:], *FSDP_OFFLOAD), question.rung
    # As many examples as the rows need; a rung may pack several into one.
    per_row = max(1, PACKED_EXAMPLES_PER_POSITION * question.length) if rung else 1
    settings = question.settings(ceil(question.steps * question.gpus * question.batch * per_row))
    settings |= {"batch_size": micro_batch, "grad_acc": question.batch // micro_batch}
    settings |= {"fp16": question.precision == "fp16", "bf16": question.precision == "bf16"}
    if checkpointing and not fsdp:  # there the configuration says it: run_folder/fsdp_config.py
        settings["gradient_checkpointing"] = True
    if rung and name.startswith("zero3"):  # as in further/speed-ladder/submit.txt
        settings["compile"] = False
    # The simulated shape has the model's own name, the command the hub's.
    used = exercise_settings(exercise, rung) | settings | {"model_name": question.model}
    config, argument, changed = None, "", False
    if name:
        argument = f"{'fsdp_configs' if name in FSDP + FSDP_OFFLOAD else 'ds_configs'}/{name}.json"
        shipped = read_object((exercise / argument).resolve())
        config = dict(shipped)
        if fsdp and not question.model.startswith("bloom"):
            config.pop("transformer_layer_cls_to_wrap")  # then the library names the blocks
        if fsdp and checkpointing:
            config["activation_checkpointing"] = True
        if changed := config != shipped:
            argument = "planned.json"
    trained = read_values(exercise / argument, config, used, question.gpus) if name else None
    workload = of_settings(used, trained, question.gpus, question.nodes)
    workload = replace(workload, fabric_gb_per_s=question.fabric_gb_per_s)
    command = Command(settings, question.nodes, question.gpus_per_node, launcher, argument)
    return Candidate(name or "one GPU", command, workload, config=config, changed=changed)


def text(question: Question, ranked: list[Candidate]) -> str:
    """A table of the configurations, the winner's command and its configuration."""
    titles = (
        *("strategy", "micro-batch x accumulation", "checkpointing", *TITLES),
        *("GPU-hours per 10^9 tokens", "limited by", question.gpu),
    )
    fabric = f", {question.fabric_gb_per_s:g} GB/s between nodes" if question.nodes > 1 else ""
    head = (
        f"{question.model} on {question.gpus} x {question.gpu}, {counted(question.nodes, 'node')}: "
        f"{counted(question.batch, 'row')} of {question.length} tokens per GPU and step, {question.precision}{fabric}\n"
        f"The same work for all: {question.steps * question.tokens_per_step:,} tokens, padding included, in "
        f"{counted(question.steps, 'step')}; nodes with {question.hardware.node_gib:,.0f} GiB of CPU memory\n\n"
    )
    rows = [
        [
            *(one.strategy, one.micro_batches, "yes" if one.checkpointing else "no", *one.prediction.cells),
            *(one.hours_per_billion.text(), one.prediction.parts.decided_by, one.prediction.reason),
        ]
        for one in best_of_each(ranked)
    ]
    if question.long:
        titles += _LAYOUT_TITLES
        for row, one in zip(rows, best_of_each(ranked), strict=True):
            in_node, between_nodes, bubble, runs_in = one.traffic.values()
            row += [f"{in_node:,.0f}", f"{between_nodes:,.0f}", f"{100 * bubble:.1f}" if bubble else "-", runs_in]
    return f"{head}{markdown(titles, rows)}\n\n{_first(question, ranked[0])}"


def _first(question: Question, first: Candidate) -> str:
    """The first choice's command and configuration, if it fits."""
    found, loading_mib = first.prediction.ranges, first.prediction.loading_mib
    if first.prediction.verdict != "fits":
        return "None is sure to fit: more GPUs, shorter rows or a smaller batch."
    if not first.command:
        return f"First: {first.strategy}, but {NO_SCRIPT}."
    minutes = ceil(found["total_runtime_s"].largest / 60) + _SIGNAL_MINUTES
    asked = (f"--mem={ceil(first.prediction.largest_cpu_gib)}G", f"--time={minutes // 60}:{minutes % 60:02}:00")
    weights = f"MODEL_INIT=random: no name on the hub is known here for {question.model}."
    if loading_mib:
        weights = f"The weights are read in fp32 first, by each rank: {loading_mib / 1024:,.0f} GiB of CPU memory."
    text = (
        f"First: {first.strategy}, {found['gpu_hours'].text(2)} GPU-hours; of those within {NOISE:.0%} of the fastest "
        f"the one with least allocated\n\n{indent(first.command.text(*asked), '    ')}\n\n"
        f"--mem and --time are the largest that is predicted.\n{weights}"
    )
    if not first.config:
        return text
    folder = Path(first.command.launcher).parent
    file = f"{folder}/{first.command.argument}{', to be written' * first.changed}"
    return f"{text}\n\n{file}:\n\n{json.dumps(first.config, indent=2)}"


def as_json(question: Question, ranked: list[Candidate]) -> dict[str, Any]:
    work = {"steps": question.steps, "tokens": question.steps * question.tokens_per_step}
    work["node_gib"] = question.hardware.node_gib
    entries = [
        {
            "strategy": one.strategy,
            "line": one.line,
            "micro_batches": one.micro_batches,
            "checkpointing": one.checkpointing,
            **one.prediction.figures,
            "gpu_hours_per_1e9_tokens": one.hours_per_billion.rounded,
            "limited_by": one.prediction.parts.decided_by,
            "verdict": one.prediction.reason,
        }
        | (one.traffic if question.long else {})
        for one in ranked
    ]
    return {"question": vars(question) | work, "candidates": entries}
