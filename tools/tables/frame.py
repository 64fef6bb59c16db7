"""Runs as a pandas frame: one row per run, typed columns, for notebooks, plots and other programs.

    import tools
    runs = tools.load_runs("logs/reference/h200x1", "logs/reference/h200x2")
    tools.repeats(runs, ["model", "config", "precision"], ["samples_per_second"])

pandas takes half a second to import, so only what needs a frame imports this module.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from tools.logs.figures import OF_ONE_RUN, figure
from tools.logs.run import SHOWN_STATES, Run
from tools.logs.runs import find_runs, progress
from workshop.run_folder.printable import one_line

# What ran, beside the figures: column to pandas type, what it is. From run.json.
FACTS: dict[str, tuple[str, str]] = {
    "folder": ("string", "the run folder"),
    "state": ("category", "how the run ended: " + ", ".join(SHOWN_STATES)),
    "start": ("datetime64[us, UTC]", "when the job started"),
    "exercise": ("category", "folder of the exercise"),
    "config": ("category", "stem of the configuration file"),
    "model": ("category", "name of the model"),
    "method": ("category", "how it was sharded, as observed"),
    "rung": ("category", "rung of the speed ladder"),
    "precision": ("category", "asked for: fp32, fp16 or bf16"),
    "ran_in": ("category", "precision that really ran"),
    "gpu": ("category", "name of the GPUs"),
    "nodes": ("Int64", "number of nodes"),
    "gpus_per_node": ("Int64", "training processes per node"),
    "grad_acc": ("Int64", "micro-batches per optimizer step"),
    "max_length": ("Int64", "tokens per row"),
    "train_examples": ("Int64", "training examples"),
    "adapters": ("category", "full, or in further/lora/ also lora or qlora"),
    "lora_rank": ("Int64", "rank of the adapters"),
    "gradient_checkpointing": ("boolean", "whether activations were computed again"),
    "compile": ("boolean", "whether the blocks were compiled"),
    "learning_rate": ("float64", "the highest"),
    "seed": ("Int64", "of weights and order"),
    "git_commit": ("string", "commit of the code"),
    "repeat": ("Int64", "number of the repeat"),
    "reason": ("string", "why a run did not complete, or why its run.json cannot be read"),
}
_TYPES = {float: "float64", bool: "boolean", str: "string"}
_FIGURE_TYPES = {name: _TYPES[one.kind] for name, one in OF_ONE_RUN.items()}


def load_runs(*log_dirs: str | Path) -> pd.DataFrame:
    """The runs below the folders, oldest first; its columns are FACTS, then the figures (`runs --columns` lists both).

    A figure is NaN, or <NA>, where there is none. Those of a run that did not complete are what it left; the tables
    show its state instead.
    """
    return frame_of(find_runs(*map(Path, log_dirs)))


def frame_of(runs: Sequence[Run]) -> pd.DataFrame:
    """The frame of runs that have been found."""
    rows = [_facts(run) | {name: figure(run, name) for name in _FIGURE_TYPES} for run in progress(runs, "reading logs")]
    found = pd.DataFrame(rows, columns=[*FACTS, *_FIGURE_TYPES])
    types = {name: kind for name, (kind, _) in FACTS.items()} | _FIGURE_TYPES
    return found.astype(types | {"state": pd.CategoricalDtype(SHOWN_STATES)})


def _facts(run: Run) -> dict[str, object]:
    own = {"folder": one_line(str(run.folder)), "reason": run.reason or None, "ran_in": run.record.precision}
    own["gpu"] = run.record.gpu_names[0] if run.record.gpu_names else None
    return {name: own[name] if name in own else run.fact(name) for name in FACTS}


def repeats(runs: pd.DataFrame, by: Sequence[str], figures: Sequence[str]) -> pd.DataFrame:
    """Count, median, least and largest of the figures of completed runs that agree in the columns `by`."""
    completed = runs[runs["state"] == "completed"]
    return completed.groupby(list(by), observed=True, dropna=False)[list(figures)].agg(
        ["count", "median", "min", "max"]
    )


def columns() -> str:
    """Every column with its type and meaning, as a Markdown list."""
    facts = [f"- `{name}` ({kind}): {meaning}" for name, (kind, meaning) in FACTS.items()]
    return "\n".join(
        facts + [f"- `{name}` ({kind}): {OF_ONE_RUN[name].definition}" for name, kind in _FIGURE_TYPES.items()]
    )
