"""The answer to a question about a model: the first choice with its command, then a table; or JSON or CSV.

Text has two digits and an interval, because a step is 10 % wrong on average; JSON and CSV have all digits.
"""

import json
import shlex
import textwrap
from dataclasses import asdict, replace
from math import ceil
from pathlib import Path
from typing import Any

from tools.plan.candidates import ADAPTER_RANK, ADAPTERS, EIGHT_BITS, PURE, PURE_8, RUNGS, Candidate, Question
from tools.plan.memory import MIB
from tools.plan.predict import ALLOCATED_ERROR_PERCENT, SAME_HOST_ERROR, Range
from tools.plan.ranking import best_of_each, merits, rank
from tools.plan.workload import EXAMPLES_PER_POSITION
from tools.tables.markdown import padded
from workshop.record.printable import counted

WIDTH = 100
_ROWS = 10
_TITLES = ("strategy", "rows", "GPU", "CPU", "tok/s", "GPU-h", "error %", "limited by", "verdict")
_NUMBERS = range(2, 7)  # columns
# Of a first choice by one of these recipes.
_INEXACT = {EIGHT_BITS: " Adam's moments have 8 bits: with exact ones none is sure to fit."}
_INEXACT |= dict.fromkeys((PURE, PURE_8), " Its weights are in bf16, which loses updates: in fp32 none is sure to fit.")
# Of tables with rows of one of these recipes.
_EXPLAINED = {
    ADAPTERS: f"LoRA and QLoRA train adapters of rank {ADAPTER_RANK}, not the weights.",
    RUNGS: "rung 12, 13: the speed ladder's packed rows, fused and compiled kernels, in 13 by one launch; logits of "
    "answers only.",
    (PURE, PURE_8): "bf16: weights, gradients and moments; updates below 0.4 % of a weight are lost; it learns less.",
    (EIGHT_BITS, PURE_8): "8-bit: Adam's moments in 8 bits, by torchao; not exact.",
}
_LITTLE = 0.3  # of the frozen weights; the embedding and the head stay whole


def text(question: Question, ranked: list[Candidate], every: bool = False) -> str:
    """Args: every: more than ten rows."""
    gpu, firsts = question.hardware, best_of_each(ranked)
    fabric = f", {question.fabric_gb_per_s:g} GB/s between nodes" if question.nodes > 1 else ""
    head = (
        f"{question.model} on {question.gpus} x {question.gpu}, {counted(question.nodes, 'node')}: "
        f"{counted(question.batch, 'row')} of {question.length:,} tokens per GPU and step, {question.precision}"
        f"{fabric}; {question.work_tokens:,.0f} tokens in all. A GPU has {gpu.memory_mib / 1024:.1f} GiB, a node "
        f"{gpu.node_gib:,.0f} GiB of CPU memory."
    )
    shown = firsts if every else _selected(firsts, Path(question.config_file).name)
    table = _table([_cells(one, question) for one in shown])
    return "\n\n".join([_wrapped(head), _first(question, ranked), table, _notes(question, ranked, shown, len(firsts))])


def _selected(firsts: list[Candidate], own: str) -> list[Candidate]:
    """A configuration of one's own, the first ones that train all weights exactly, the best of each other recipe."""
    best = {one.recipe: one for one in reversed(firsts) if one.recipe}
    others = sorted((one for one in firsts if not one.recipe), key=lambda one: one.strategy != own)
    chosen = [*best.values(), *others[: _ROWS - len(best)]]
    return [one for one in firsts if one in chosen] if others else firsts[:_ROWS]


def _first(question: Question, ranked: list[Candidate]) -> str:
    """The first choice with its command, and what may be cheaper; or which memory is too small for all."""
    first = ranked[0]
    if first.verdict == "does not fit":
        adapters = [one for one in ranked if one.trains == "adapters" and one.verdict == "fits"]
        fitting = f" It fits with adapters: {adapters[0].name}." if adapters else ""
        return _wrapped(f"First: none. {_advice(question, ranked)}{fitting}")
    what = f"First: {first.name}, {_two_digits(first.gpu_hours)} GPU-hours."
    if first.verdict == "close":
        what += f" It is close: its tensors may take the {ALLOCATED_ERROR_PERCENT:g} % too much. None is sure to fit."
    what += _INEXACT.get(first.recipe, "")
    close = [one for one in ranked if one.verdict == "close" and one.recipe == first.recipe]
    cheapest = min(close, key=lambda one: one.gpu_hours, default=first)
    if first.verdict == "fits" and (times := first.gpu_hours / cheapest.gpu_hours) > 1 + SAME_HOST_ERROR:
        what += f" {times:.1f} times cheaper if it fits: {cheapest.name}."
    parts = [_wrapped(what), _wrapped(_why(question, ranked)), _command(_sbatch(first))]
    if local := first.without_slurm():
        parts += ["Without SLURM:", _command(local)]
    return "\n\n".join([*parts, *_file(first), *_packed_rows(question, ranked)])


def _why(question: Question, ranked: list[Candidate]) -> str:
    """Why this row, which others are as fast, and what --batch decides."""
    first, *others = [one for one in ranked if one.verdict == ranked[0].verdict and one.recipe == ranked[0].recipe]
    first_s = first.prediction.sort_key[1]
    peers = [one.prediction for one in (first, *others) if merits(one.workload) == merits(first.workload)]
    if not others:
        why = ", and no other row that trains the same way does"
    elif first.workload.plain:
        margin = f"{100 * first.prediction.surely_faster:.0f} %"
        why = f", shards and offloads nothing, and no row is surely faster (by {margin})"
    elif first_s <= min(one.prediction.sort_key[1] for one in others):
        why = " and is the fastest"
    elif first.prediction is not (fastest := min(peers, key=lambda one: one.sort_key)) and fastest.tight:
        percent = 100 * SAME_HOST_ERROR
        why = f"; the fastest may leave less than 1 GiB with gaps; of those within {percent:.0f} % it needs the least"
    else:
        why = "; what seems faster is not surely so, and needs more memory or offload, or we have not run it"
    near = [one for one in others if abs(one.prediction.sort_key[1] / first_s - 1) <= SAME_HOST_ERROR]
    equal = dict.fromkeys(one.strategy for one in near if one.strategy != first.strategy)
    alike = f" Equal within the error of {100 * SAME_HOST_ERROR:.0f} %: {', '.join(equal)}." if equal else ""
    batch = f"--batch {question.batch}: {counted(question.batch, 'row')} per GPU and step, here {first.micro_batches}"
    fits = "fits" if first.verdict == "fits" else "may fit"
    return f"Why: it {fits}{why}.{alike} {batch}; with more a step costs less per row."


def _sbatch(one: Candidate) -> str:
    """The command to type, which asks for the largest prediction, but for no more CPU memory than a node has."""
    found, minutes, cpu = one.prediction, one.prediction.limit_min, one.prediction.ranges["cpu_mib"]
    gib = min(found.gpu.node_gib, max(cpu.largest, cpu.expected + found.loading_mib) / 1024)
    return one.command(f"--mem={ceil(gib)}G", f"--time={minutes // 60}:{minutes % 60:02}:00")


def _file(one: Candidate) -> list[str]:
    """What has to be written before the command; nothing for a shipped configuration."""
    file = Path(one.launcher).parent / one.argument
    return [_wrapped(f"Write {file}: {json.dumps(one.written)}")] if one.written else []


def _packed_rows(question: Question, ranked: list[Candidate]) -> list[str]:
    """What the speed ladder's top rung gains over First, and its command; nothing where none of its rows fits."""
    rows = [one for one in ranked if one.recipe in RUNGS and one.verdict == "fits"]
    if not rows or ranked[0].trains == "adapters":
        return []
    best = min(rows, key=lambda one: one.prediction.sort_key)
    times = ranked[0].prediction.sort_key[1] / best.prediction.sort_key[1]
    what = f"Packed rows: {best.name}, {times:.1f} times First's tokens/s, of full rows."
    padding = 100 * (1 - 1 / (EXAMPLES_PER_POSITION * question.length))
    what += f" SQuAD's rows are {padding:.0f} % padding: the others are slower by that share."
    return [_wrapped(what), _command(_sbatch(best)), *_file(best)]


def _two_digits(value: float) -> str:
    """0.86, 4.4, 13, 2,800."""
    rounded = float(f"{value:.2g}")
    return f"{rounded:,.{0 if rounded >= 10 else 1 if rounded >= 1 else 2}f}"


def _interval(found: Range) -> str:
    """Below and above the expected value in percent, rounded to 5."""
    return " ".join(f"{5 * round(20 * (end / found.expected - 1)):+d}" for end in (found.least, found.largest))


def _advice(question: Question, ranked: list[Candidate]) -> str:
    """By the limit that binds, and the methods that fit but that the table lacks, because another one was asked for."""
    found = [one.prediction for one in ranked if not one.error]
    others = {"full": ("lora", "qlora"), "lora": ("qlora",)}.get(question.method, ())
    fitting = [method for method in others if rank(replace(question, method=method))[0].verdict == "fits"]
    also = f" Or try --method {' or '.join(fitting)}." if fitting else ""
    if any(one.limit == "CPU" and one.loading_mib / 1024 >= one.gpu.node_gib for one in found):
        return f"CPU memory is too small for the weights that are read into it: a larger --node-memory helps.{also}"
    if any(one.limit == "CPU" for one in found):
        return f"CPU memory is too small for what is offloaded: more nodes, or a larger --node-memory.{also}"
    nearest = min(found, key=lambda one: one.needed_mib)
    if nearest.terms.get("activations", 0) > nearest.gpu.memory_mib / 2:
        return "GPU memory is too small for one row's activations: shorter rows (--length)."
    return f"GPU memory is too small: more GPUs.{also}"


def _cells(one: Candidate, question: Question) -> list[str]:
    """In the order of the titles."""
    strategy = one.strategy.replace(" x ", " ")  # layouts have long names
    cells = [strategy, f"{one.micro_batches} ckpt" if one.checkpointing else one.micro_batches]
    if not (found := one.prediction):
        return [*cells, *["-"] * (len(_TITLES) - 3), "unknown"]
    speed = found.ranges["tokens_per_second"]
    memory = [f"{found.needed_mib / 1024:,.1f}", f"{found.least_cpu_gib:,.0f}"]
    times = [_two_digits(speed.expected / question.gpus), _two_digits(one.gpu_hours), _interval(speed)]
    verdict = f"no: {found.limit}" if found.limit else found.verdict
    return [*cells, *memory, *times, found.parts.decided_by, verdict]


def _table(rows: list[list[str]]) -> str:
    """In Markdown, with columns of one width; numbers to the right."""
    head, *cells = padded([list(_TITLES), *rows], right=_NUMBERS)
    under = ["-" * (len(title) - 1) + (":" if place in _NUMBERS else "-") for place, title in enumerate(head)]
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, under, *cells))


def _notes(question: Question, ranked: list[Candidate], shown: list[Candidate], number: int) -> str:
    gpu = question.hardware
    notes = [
        "rows: of a micro-batch x how many are added up; ckpt: checkpointing. GPU: GiB of tensors and CUDA's "
        f"context; it fits with {ALLOCATED_ERROR_PERCENT:g} % more tensors. CPU: GiB of a node, also while weights "
        "are read. tok/s: of a GPU; error %: its interval, mostly the host's share, which all rows have in common."
    ]
    notes += [text for recipes, text in _EXPLAINED.items() if any(one.recipe in recipes for one in shown)]
    if (saved := _saved_by_four_bits(ranked)) < _LITTLE:
        notes.append(
            f"QLoRA: 4 bits save {100 * max(0, saved):.0f} % of the frozen weights: experts are no torch.nn.Linear."
        )
    if whole := question.content.get("_text_of"):
        notes.append(f"The text decoder of {whole} alone, with random weights: no exercise trains images.")
    elif "model_init" in ranked[0].settings:
        notes.append(f"MODEL_INIT=random: no name on the hub is known here for {question.model}.")
    if not gpu.measured:
        notes.append(f"{question.gpu}: by {gpu.source}; no run of ours measured one.")
    if beyond := shown[0].prediction.extrapolates:
        notes.append(f"No run of ours had {', '.join(beyond)}: the intervals are those of smaller ones.")
    for reason in dict.fromkeys(one.error for one in shown if one.error):
        notes.append(f"unknown: {', '.join(one.strategy for one in shown if one.error == reason)}: {reason}")
    if len(shown) < number:
        notes.append(f"{counted(number - len(shown), 'more row')}: --all.")
    return "\n".join(map(_wrapped, notes))


def _saved_by_four_bits(ranked: list[Candidate]) -> float:
    """The share of the weights, in bf16, that QLoRA saves; 1 without its rows, of which some do not share weights."""
    found = [one.prediction for one in ranked if one.recipe == "QLoRA" and not one.error]
    return min((1 - one.terms.get("frozen weights", 0) * MIB / (2 * one.parameters) for one in found), default=1)


def _wrapped(paragraph: str) -> str:
    return textwrap.fill(paragraph, WIDTH, break_on_hyphens=False)


def _command(line: str) -> str:
    words, lines = shlex.split(line), [""]
    for word in map(shlex.quote, words):
        if len(lines[-1]) + 1 + len(word) > WIDTH - 8:
            lines.append("")
        lines[-1] += f" {word}" if lines[-1] else word
    return "    " + " \\\n      ".join(lines)


def as_json(question: Question, ranked: list[Candidate]) -> str:
    work = {"steps": question.steps, "work_tokens": question.work_tokens, "node_gib": question.hardware.node_gib}
    return json.dumps({"question": asdict(question) | work, "candidates": [_entry(one) for one in ranked]}, indent=2)


def as_csv(question: Question, ranked: list[Candidate]) -> str:
    """A row per candidate; figures have a column for each end of their interval."""
    import pandas as pd

    return pd.json_normalize([_entry(one) for one in ranked], sep="_").to_csv(index=False).rstrip("\n")


def _entry(one: Candidate) -> dict[str, Any]:
    found = {"strategy": one.strategy, "trains": one.trains, "line": one.line, "micro_batches": one.micro_batches}
    found["checkpointing"] = one.checkpointing
    if one.error:
        return found | {"verdict": "unknown", "reason": one.error}
    return found | one.prediction.as_json
