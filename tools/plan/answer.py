"""The answer to a question about a model: the first choice with its command, then a table; or JSON or CSV."""

import json
import shlex
import textwrap
from math import ceil
from pathlib import Path
from typing import Any

from tools.plan.candidates import ADAPTER_RANK, EIGHT_BITS, Candidate, Question
from tools.plan.constants import NOISE
from tools.plan.predict import ALLOCATED_ERROR_PERCENT, Range
from tools.plan.ranking import best_of_each
from tools.plan.time_limits import SIGNAL_MINUTES
from workshop.run_folder.plural import counted
from workshop.run_folder.printable import padded

WIDTH = 100
_ROWS = 10
_WORTH = 1.05  # times cheaper, from where on a choice that is close is named
_TITLES = ("strategy", "rows", "ckpt", "GPU GiB", "CPU GiB", "tok/s/GPU", "GPU-h", "verdict")


def text(question: Question, ranked: list[Candidate], every: bool = False, ranges: bool = False) -> str:
    """Args: every: more than ten rows; ranges: intervals in place of expected values, without the CPU's memory."""
    gpu, firsts = question.hardware, best_of_each(ranked)
    fabric = f", {question.fabric_gb_per_s:g} GB/s between nodes" if question.nodes > 1 else ""
    head = (
        f"{question.model} on {question.gpus} x {question.gpu}, {counted(question.nodes, 'node')}: "
        f"{counted(question.batch, 'row')} of {question.length:,} tokens per GPU and step, {question.precision}"
        f"{fabric}; {question.work_tokens:,.0f} tokens in all. A GPU has {gpu.memory_mib / 1024:.1f} GiB, a node "
        f"{gpu.node_gib:,.0f} GiB of CPU memory."
    )
    shown = firsts if every else _selected(firsts, Path(question.config).name)
    table = _table([_cells(one, question, ranges) for one in shown])
    return "\n\n".join([_wrapped(head), _first(question, ranked), table, _notes(question, shown, len(firsts))])


def _selected(firsts: list[Candidate], own: str) -> list[Candidate]:
    """A configuration of one's own, the first ones that train all weights exactly, the best of each other method."""
    best = {one.method: one for one in reversed(firsts) if one.method}
    others = sorted((one for one in firsts if not one.method), key=lambda one: one.strategy != own)
    chosen = [*best.values(), *others[: _ROWS - len(best)]]
    return [one for one in firsts if one in chosen] if others else firsts[:_ROWS]


def _first(question: Question, ranked: list[Candidate]) -> str:
    """The first choice with its command, and what may be cheaper; or which memory is too small for all."""
    first = ranked[0]
    found, verdict = first.prediction.ranges, first.prediction.verdict
    if verdict == "does not fit":
        adapters = [one for one in ranked if one.trains == "adapters" and not one.error]
        fitting = [f" It fits with adapters: {one.name}." for one in adapters if one.prediction.verdict == "fits"]
        return _wrapped(f"First: none. {_advice(question, ranked)}{''.join(fitting[:1])}")
    what = f"First: {first.name}, {_hours(first):,.2f} GPU-hours."
    if verdict == "close":
        what += f" It is close: its tensors may take the {ALLOCATED_ERROR_PERCENT:g} % too much. None is sure to fit."
    if first.method == EIGHT_BITS:
        what += " Adam's moments have 8 bits: with exact ones none is sure to fit."
    close = [one for one in ranked if not one.error and one.prediction.verdict == "close"]
    cheapest = min((one for one in close if one.method == first.method), key=_hours, default=first)
    if verdict == "fits" and (times := _hours(first) / _hours(cheapest)) >= _WORTH:
        what += f" {times:.1f} times cheaper if it fits: {cheapest.name}."
    minutes = ceil(found["total_runtime_s"].largest / 60) + SIGNAL_MINUTES
    asked = (f"--mem={ceil(first.prediction.largest_cpu_gib)}G", f"--time={minutes // 60}:{minutes % 60:02}:00")
    parts = [_wrapped(what), _command(first.command(*asked))]
    if local := first.without_slurm():
        parts += ["Without SLURM:", _command(local)]
    if first.config:
        file = Path(first.launcher).with_name(first.argument)
        parts.append(_wrapped(f"Write {file}: {json.dumps(first.config)}"))
    return "\n\n".join(parts)


def _hours(one: Candidate) -> float:
    return one.prediction.ranges["gpu_hours"].expected


def _advice(question: Question, ranked: list[Candidate]) -> str:
    """By the limit that binds, and the methods that the table does not have because another one was asked for."""
    found = [one.prediction for one in ranked if not one.error]
    if any(one.limit == "CPU" and one.loading_mib / 1024 >= one.gpu.node_gib for one in found):
        also = " Or try --method lora, whose weights have half the size." if question.method == "full" else ""
        return f"CPU memory is too small for the weights that are read into it: a larger --node-memory helps.{also}"
    also = {"full": " Or try --method lora or qlora.", "lora": " Or try --method qlora."}.get(question.method, "")
    if any(one.limit == "CPU" for one in found):
        return f"CPU memory is too small for what is offloaded: more nodes, or a larger --node-memory.{also}"
    nearest = min(found, key=lambda one: one.needed_mib)
    if nearest.terms.get("activations", 0) > nearest.gpu.memory_mib / 2:
        return "GPU memory is too small for one row's activations: shorter rows (--length)."
    return f"GPU memory is too small: more GPUs.{also}"


def _cells(one: Candidate, question: Question, ranges: bool) -> dict[str, str]:
    """By the titles of the columns."""

    def written(value: Range, decimals: int) -> str:
        least, expected, largest = (f"{end:,.{decimals}f}" for end in value)
        return f"{least}-{largest}" if ranges else expected

    cells = dict.fromkeys(_TITLES, "-") | {"rows": one.micro_batches, "ckpt": "yes" if one.checkpointing else ""}
    # Layouts have long names.
    cells |= {"strategy": one.strategy.replace(" x ", " ").replace(", interleaved", " int."), "verdict": "unknown"}
    if found := one.prediction:
        cells["GPU GiB"] = written(found.needed.times(1 / 1024), 1)
        cells["CPU GiB"] = f"{found.least_cpu_gib:,.0f}"
        cells["tok/s/GPU"] = written(found.ranges["tokens_per_second"].times(1 / question.gpus), 0)
        cells["GPU-h"] = written(found.ranges["gpu_hours"], 0 if _hours(one) >= 100 else 2)
        cells["verdict"] = f"no: {found.limit}" if found.limit else found.verdict
    return {title: cell for title, cell in cells.items() if not (ranges and title == "CPU GiB")}


def _table(rows: list[dict[str, str]]) -> str:
    """In Markdown, with columns of one width; numbers to the right."""
    numbers = range(3, len(rows[0]) - 1)
    head, *cells = padded([list(rows[0]), *(list(row.values()) for row in rows)], right=numbers)
    under = ["-" * (len(title) - 1) + (":" if place in numbers else "-") for place, title in enumerate(head)]
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, under, *cells))


def _notes(question: Question, shown: list[Candidate], number: int) -> str:
    gpu = question.hardware
    notes = [
        "rows: of a micro-batch x how many are added up. GPU GiB: tensors and CUDA's context; it fits with "
        f"{ALLOCATED_ERROR_PERCENT:g} % more tensors. CPU GiB: of a node, also while weights are read."
    ]
    if shown[0].prediction.tight and not shown[0].prediction.limit:
        notes.append(f"Memory is tight: of those within {NOISE:.0%} of the fastest First has the least.")
    if any(one.trains == "adapters" for one in shown):
        notes.append(f"LoRA and QLoRA train adapters of rank {ADAPTER_RANK}, not the weights.")
    if any(one.method == EIGHT_BITS for one in shown):
        notes.append("8-bit: Adam's moments in 8 bits, by torchao; not exact.")
    if "model_init" in question.settings(1):
        notes.append(f"MODEL_INIT=random: no name on the hub is known here for {question.model}.")
    if not gpu.measured:
        notes.append(f"{question.gpu}: by {gpu.source}; no run of ours measured one.")
    if beyond := shown[0].prediction.extrapolates:
        notes.append(f"No run of ours had {', '.join(beyond)}: the intervals are those of smaller ones.")
    for reason in dict.fromkeys(one.error for one in shown if one.error):
        notes.append(f"unknown: {', '.join(one.strategy for one in shown if one.error == reason)}: {reason}.")
    if len(shown) < number:
        notes.append(f"{number - len(shown)} more rows: --all. Intervals: --ranges.")
    return "\n".join(map(_wrapped, notes))


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
    return json.dumps(
        {"question": vars(question) | work, "candidates": [_entry(question, one) for one in ranked]}, indent=2
    )


def as_csv(question: Question, ranked: list[Candidate]) -> str:
    """A row per candidate; figures have a column for each end of their interval."""
    import pandas as pd

    rows = []
    for one in ranked:
        row: dict[str, Any] = {}
        for name, value in _entry(question, one).items():
            ends = value if isinstance(value, dict) else {}
            row |= {f"{name}_{end}": number for end, number in ends.items()} or {name: value}
        rows.append(row)
    return pd.DataFrame(rows, dtype=object).to_csv(index=False).rstrip("\n")


def _entry(question: Question, one: Candidate) -> dict[str, Any]:
    found = {"strategy": one.strategy, "trains": one.trains, "line": one.line, "micro_batches": one.micro_batches}
    found["checkpointing"] = one.checkpointing
    if one.error:
        return found | {"verdict": "unknown", "reason": one.error}
    prediction = one.prediction
    found |= prediction.figures | {"needed_mib": round(prediction.needed_mib)}
    found |= {"least_cpu_gib": round(prediction.least_cpu_gib, 1), "extrapolates": prediction.extrapolates}
    found |= {"limited_by": prediction.parts.decided_by, "verdict": prediction.verdict, "reason": prediction.reason}
    return found | (one.traffic if question.long else {})
