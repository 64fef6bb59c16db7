"""Predictions under the names that tables and `runs --figures` have for what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tools.errors import InputError
from tools.logs.run import Run
from tools.plan import evaluate
from tools.plan.predict import Prediction
from tools.tables.fill import Cell, FilledTable, written
from tools.tables.metrics import METRICS

PREFIX = "predicted_"
# A metric's name, the prediction's, and the factor between their units.
_SAME = {
    "peak_allocated": ("peak_allocated_mib", 1),
    "memory_allocated": ("peak_allocated_mib", 1),
    "memory_allocated_gb": ("peak_allocated_mib", 2**20 / 1e9),
    "peak_reserved": ("peak_reserved_mib", 1),
    "peak_gpu": ("nvidia_smi_mib", 1),
    "peak_cpu": ("cpu_mib", 1),
    "step_time": ("step_time_s", 1000),
    "tokens_per_second": ("tokens_per_second", 1),
    "median_tokens_per_second": ("tokens_per_second", 1),
    "samples_per_second": ("samples_per_second", 1),
    "total_runtime": ("total_runtime_s", 1),
}
NAMES = [PREFIX + name for name in _SAME]
Predictions = dict[Path, Prediction]


def predictions(runs: Sequence[Run]) -> Predictions:
    """Predictions by run folder, for runs on GPUs that completed or ran out of memory.

    Each leaves out its own configuration if there are enough others (tools/plan/evaluate.py).
    """
    return {run.folder: case.predicted for case in evaluate.cases(runs) for run in case.runs}


def figure(found: Predictions, run: Run, name: str) -> str:
    """The predicted figure as printed, without its unit; `name`: one of NAMES."""
    if run.folder not in found:
        return "not predicted"
    return _text(found[run.folder], name.removeprefix(PREFIX))


def is_predicted(name: str) -> bool:
    """Whether it names a prediction. Raises InputError for one that does not exist."""
    if name.startswith(PREFIX) and name not in METRICS and name not in NAMES:
        raise InputError(f"--figures {name}: unknown; predictions are {', '.join(NAMES)}")
    return name in NAMES


def with_predictions(table: FilledTable, found: Predictions) -> FilledTable:
    """The table with the prediction beside every figure that has one."""

    def add(cell: Cell | None) -> Cell | None:
        if cell is None or cell.metric.name not in _SAME or not cell.runs or cell.runs[-1].folder not in found:
            return cell
        return replace(cell, text=f"{cell.text} (predicted {_text(found[cell.runs[-1].folder], cell.metric.name)})")

    return replace(table, cells=[[add(cell) for cell in row] for row in table.cells])


def _text(prediction: Prediction, name: str) -> str:
    source, factor = _SAME[name]
    return written(METRICS[name], prediction.ranges[source].expected * factor, unit_named=True)
