"""Which strategy: every way to train a model on some GPUs, as lines that `submit` takes, each predicted.

A candidate is a configuration file, a micro-batch with as many accumulations as make up the batch, and with or without
checkpointing. All of them are predicted from the same few simulated micro-batches. Per configuration the fastest that
fits is shown, or why none does.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from evidence.counted import counted
from tools.errors import InputError
from tools.logs.folder import read_object
from tools.logs.gpu_peaks import PEAK_TFLOPS
from tools.plan.fitting import NOISE, first_choice
from tools.plan.gpus import GPUS
from tools.plan.lines import workload_of
from tools.plan.predict import Prediction, predict
from tools.plan.workload import SOCKETS_GB_PER_S, Workload
from tools.submit.submissions import read_argument
from tools.tables.repository import ROOT

FSDP = ("ddp", "full_shard", "shard_grad_op", "hybrid_shard")
FSDP_OFFLOAD = ("full_shard_offload", "shard_grad_op_offload", "hybrid_shard_offload")
ZERO = ("zero0", "zero1", "zero1_offload", "zero2", "zero2_offload", "zero3", "zero3_offload")
SHAPES = ROOT / "workshop" / "shapes"
_ORDER = {"fits": 0, "close": 1, "does not fit": 2}


@dataclass(frozen=True)
class Question:
    """Attributes: length: tokens per row; batch: rows per GPU and optimizer step; rung: of the speed ladder, or ""."""

    model: str
    gpus: int
    nodes: int
    gpu: str
    length: int = 512
    batch: int = 16
    rung: str = ""
    fabric_gb_per_s: float = SOCKETS_GB_PER_S

    def check(self) -> None:
        """Raises InputError for an unknown model, and for counts that no cluster of these GPUs has."""
        known = ["tiny", *sorted(path.stem for path in SHAPES.glob("*.json"))]
        if self.model not in known:
            raise InputError(
                f"--model {self.model}: unknown; expected one of {', '.join(known)}; or add another "
                "model's config.json of the hub as workshop/shapes/NAME.json"
            )
        for name in ("gpus", "nodes", "length", "batch"):
            if getattr(self, name) < 1:
                raise InputError(f"--{name} {getattr(self, name)}: expected at least 1")
        if not self.fabric_gb_per_s > 0:  # nor what is no number
            raise InputError(f"--fabric {self.fabric_gb_per_s:g}: expected more than 0 GB/s")
        if self.gpus % self.nodes:
            raise InputError(f"--gpus {self.gpus} --nodes {self.nodes}: expected as many GPUs on each node")
        per_node = GPUS[self.gpu].per_node
        if self.gpus > self.nodes * per_node:
            least = -(-self.gpus // per_node)
            raise InputError(
                f"--gpus {self.gpus} --nodes {self.nodes}: a node of {self.gpu} holds {per_node}; "
                f"expected --nodes {least} or more"
            )

    @property
    def precision(self) -> str:
        """bf16 where the GPU has it: it needs no loss scale."""
        return "bf16" if "bf16" in PEAK_TFLOPS[GPUS[self.gpu].driver_name] else "fp16"


@dataclass(frozen=True)
class Candidate:
    """Attributes: line: as `submit` takes it; strategy: the configuration's name; config: what has to be in it;
    changed: the shipped file of that name has something else."""

    line: str
    strategy: str
    config: dict[str, Any]
    changed: bool
    workload: Workload

    @property
    def micro_batches(self) -> str:
        return f"{self.workload.shape['batch_size']} x {self.workload.strategy.accumulation}"

    @property
    def checkpointing(self) -> bool:
        return self.workload.shape["gradient_checkpointing"]


@dataclass(frozen=True)
class Ranked:
    candidate: Candidate
    prediction: Prediction

    @property
    def tokens_per_second(self) -> float:
        return self.prediction.ranges["tokens_per_second"].expected

    @property
    def place(self) -> tuple[int, float]:
        """What is first is best: of those that cannot fit, the one that lacks least."""
        allocated = self.prediction.memory.allocated.expected
        verdict = _ORDER[self.prediction.verdict]
        return verdict, allocated if verdict == _ORDER["does not fit"] else -self.tokens_per_second

    @property
    def option(self) -> tuple[int, float, float]:
        """For `first_choice`; tokens per step are the same for all."""
        memory_mib = self.prediction.memory.allocated.expected
        verdict, order = self.place
        return verdict, order if verdict == _ORDER["does not fit"] else 1 / self.tokens_per_second, memory_mib

    @property
    def reason(self) -> str:
        """Why it is not simply said to fit."""
        memory, gpu = self.prediction.memory, self.prediction.gpu
        if self.prediction.verdict == "does not fit":
            needs_mib = memory.allocated.expected + memory.beside_mib
            return f"does not fit: needs {needs_mib:,.0f} of {gpu.memory_mib:,} MiB"
        if self.prediction.verdict == "close":
            return f"close: may come to {memory.nvidia_smi.largest:,.0f} of {gpu.memory_mib:,} MiB"
        return "fits"


def rank(question: Question) -> list[Ranked]:
    """All candidates: the first choice, then by their speed.

    Raises:
        InputError: an unknown model, or a shape that cannot be simulated.
    """
    question.check()
    found = list(candidates(question))
    predictions = predict([one.workload for one in found], GPUS[question.gpu])
    ranked = sorted(map(Ranked, found, predictions), key=lambda one: one.place)
    first = first_choice([one.option for one in ranked])
    return [ranked.pop(first), *ranked]


def best_of_each(ranked: list[Ranked]) -> list[Ranked]:
    """The first of each configuration."""
    firsts: dict[str, Ranked] = {}
    for one in ranked:
        firsts.setdefault(one.candidate.strategy, one)
    return list(firsts.values())


def candidates(question: Question) -> Iterator[Candidate]:
    for folder, launcher, names in _launchers(question):
        for name in names:
            for micro_batch in _micro_batches(question.batch):
                # The ladder's rungs have no checkpointing: speed-ladder/ladder_settings.py.
                for checkpointing in (False,) if question.rung else (False, True):
                    found = _candidate(question, f"{folder}/{launcher}", name, micro_batch, checkpointing)
                    if _shards(found.workload):
                        yield found


def _launchers(question: Question) -> list[tuple[str, str, tuple[str, ...]]]:
    several = question.gpus > 1
    if question.rung:
        fsdp = ("ladder_torchrun.slurm", FSDP + FSDP_OFFLOAD) if several else ("ladder.slurm", ("",))
        return [("speed-ladder", *fsdp), ("speed-ladder", "ladder_deepspeed.slurm", ZERO)]
    if not several:
        return [("baseline", "baseline.slurm", ("",)), ("deepspeed-single-gpu", "deepspeed.slurm", ZERO)]
    fsdp_launcher = "multi_gpu.slurm" if question.nodes == 1 else "multi_node.slurm"
    return [("fsdp", fsdp_launcher, FSDP + FSDP_OFFLOAD), ("deepspeed-multi-gpu", "deepspeed.slurm", ZERO)]


def _micro_batches(batch: int) -> list[int]:
    """Those that make it up without a rest, at most halved from one to the next: 16, 8, 4, 2, 1."""
    found = [batch]
    while found[-1] > 1:
        found.append(next(size for size in range(found[-1] // 2, 0, -1) if batch % size == 0))
    return found


def _shards(workload: Workload) -> bool:
    """Whether a hybrid strategy has ranks to share among and ranks to repeat."""
    replicas = workload.strategy.config.get("dp_replicate_size", 1)
    return replicas == 1 or (workload.strategy.world_size % replicas == 0 and workload.strategy.shards > 1)


def _candidate(question: Question, launcher: str, name: str, micro_batch: int, checkpointing: bool) -> Candidate:
    folder = launcher.split("/")[0]
    fsdp = name in FSDP + FSDP_OFFLOAD
    settings = {
        "RUNG": question.rung,
        "MODEL_NAME": question.model,
        "MODEL_INIT": "random",
        "MAX_LENGTH": str(question.length),
        "BATCH_SIZE": str(micro_batch),
        "GRAD_ACC": str(question.batch // micro_batch),
        "FP16": str(question.precision == "fp16").lower(),
        "BF16": str(question.precision == "bf16").lower(),
        # Under FSDP the configuration says it: workshop/fsdp.py.
        "GRADIENT_CHECKPOINTING": "true" if checkpointing and (not fsdp or name == "ddp") else "",
        "COMPILE": "false" if question.rung and name.startswith("zero3") else "",  # as in speed-ladder/submit.txt
    }
    options = [f"--nodes={question.nodes}"] * (question.nodes > 1)
    options += [f"--gpus-per-node={question.gpus // question.nodes}"] * (question.gpus > 1)
    path = f"{'fsdp_configs' if fsdp else 'ds_configs'}/{name}.json" if name else ""
    words = [f"{key}={value}" for key, value in settings.items() if value]
    submission = read_argument(shlex.join([*words, *options, launcher, *[path] * bool(path)]), {})
    workload = workload_of(submission)
    shipped = read_object((ROOT / folder / path).resolve()) if path else {}
    config = dict(shipped)
    if fsdp and name != "ddp":
        if not question.model.startswith("bloom"):
            config.pop("transformer_layer_cls_to_wrap")  # then the library names the blocks
        if checkpointing:
            config["activation_checkpointing"] = True
    if config != shipped:
        path = "planned.json"
        strategy = replace(workload.strategy, config=config)
        workload = replace(
            workload, strategy=strategy, shape=workload.shape | {"gradient_checkpointing": checkpointing}
        )
    setup = replace(workload.setup, fabric_gb_per_s=question.fabric_gb_per_s)
    line = shlex.join([*words, *options, launcher, *[path] * bool(path)])
    return Candidate(line, name or "one GPU", config, config != shipped, replace(workload, setup=setup))


def text(question: Question, ranked: list[Ranked]) -> str:
    """A table of the configurations, the winner's command and its configuration."""
    titles = (
        *("strategy", "micro-batch x accumulation", "checkpointing", "allocated (MiB)", "CPU per node (GiB)"),
        *("step (ms)", "tokens/s", "limited by", question.gpu),
    )
    lines = [
        f"{question.model} on {question.gpus} x {question.gpu}, {counted(question.nodes, 'node')}: "
        f"{counted(question.batch, 'row')} of {question.length} tokens per GPU and step, {question.precision}"
        + (f", {question.fabric_gb_per_s:g} GB/s between nodes" if question.nodes > 1 else ""),
        f"\n| {' | '.join(titles)} |\n|{'---|' * len(titles)}",
    ]
    for one in best_of_each(ranked):
        found, time = one.prediction.ranges, one.prediction.time
        cells = (
            one.candidate.strategy,
            one.candidate.micro_batches,
            "yes" if one.candidate.checkpointing else "no",
            f"{found['peak_allocated_mib'].expected:,.0f}",
            f"{found['cpu_mib'].expected / 1024:,.0f}",
            f"{found['step_time_s'].expected * 1000:,.0f}",
            f"{one.tokens_per_second:,.0f}",
            time.parts.decided_by,
            one.reason,
        )
        lines.append(f"| {' | '.join(cells)} |")
    first = ranked[0]
    if first.prediction.verdict != "fits":
        return "\n".join([*lines, "\nNone is sure to fit: more GPUs, shorter rows or a smaller batch."])
    candidate, hours = first.candidate, first.prediction.ranges["gpu_hours"]
    lines.append(
        f"\nFirst: {candidate.strategy}, {hours.expected:.2f} ({hours.least:.2f} to {hours.largest:.2f}) GPU-hours; "
        f"of those within {NOISE:.0%} of the fastest the one with least allocated"
    )
    settings, command = _command(candidate.line)
    lines.append(f"\n    {settings} \\\n      sbatch {command}")
    if candidate.config:
        folder = next(word for word in command.split() if ".slurm" in word).split("/")[0]
        lines.append(f"\n{folder}/{command.split()[-1]}{', to be written' * candidate.changed}:\n")
        lines.append(json.dumps(candidate.config, indent=2))
    return "\n".join(lines)


def _command(line: str) -> tuple[str, str]:
    """A line's settings, and the rest of it."""
    words = line.split()
    count = sum("=" in word and not word.startswith("-") for word in words)
    return " ".join(words[:count]), " ".join(words[count:])


def as_json(question: Question, ranked: list[Ranked]) -> dict[str, Any]:
    def entry(one: Ranked) -> dict[str, Any]:
        figures = {name: float(f"{found.expected:.6g}") for name, found in one.prediction.ranges.items()}
        candidate = one.candidate
        return {
            "strategy": candidate.strategy,
            "line": candidate.line,
            "micro_batches": candidate.micro_batches,
            "checkpointing": candidate.checkpointing,
            **figures,
            "limited_by": one.prediction.time.parts.decided_by,
            "verdict": one.reason,
        }

    return {"question": vars(question), "candidates": [entry(one) for one in ranked]}
