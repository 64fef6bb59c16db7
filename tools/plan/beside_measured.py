"""Predictions beside what was measured: in cells of tables and of `runs --figures`; and those kept before the runs."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tools.errors import InputError
from tools.logs.folder import read_object
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


# ---- kept before their lines ran: `plan --list FILE --format json` ----

_RANGE = {"expected", "least", "largest"}


def kept_table(file: Path, runs: Sequence[Run]) -> str:
    """A row per prediction whose line ran to its end: errors in percent; then their means, the worst, the intervals.

    Raises:
        InputError: the file holds no predictions, or none of its lines ran.
    """
    predictions = read_object(file).get("runs")
    if not (isinstance(predictions, list) and predictions and all(map(_is_prediction, predictions))):
        raise InputError(f"{file}: no predictions; expected what plan --format json prints")
    newest = _newest_runs([one["run"] for one in predictions], runs)
    found = [(one, evaluate.measured_of(newest[one["run"]])) for one in predictions if one["run"] in newest]
    if not found:
        raise InputError(f"{file}: none of its {len(predictions)} lines completed on a GPU in these logs")
    errors = [
        {name: 100 * (one[name]["expected"] / value - 1) for name, value in measured.items()} for one, measured in found
    ]
    rows = [[_without_usual(one["run"]), *_percents(error)] for (one, _), error in zip(found, errors, strict=True)]
    by_metric = {name: [error[name] for error in errors if name in error] for name in evaluate.METRICS}
    sizes = {name: [abs(value) for value in values] for name, values in by_metric.items()}
    means = (f"{statistics.fmean(one):.1f} ({max(one):.1f})" if one else "-" for one in sizes.values())
    rows.append(["**mean (worst)**", *means])
    inside = [
        sum(one[name]["least"] <= measured[name] <= one[name]["largest"] for one, measured in found if name in measured)
        for name in evaluate.METRICS
    ]
    counts = [f"{count} of {len(sizes[name])}" for name, count in zip(evaluate.METRICS, inside, strict=True)]
    rows.append(["inside the interval", *counts])
    titles = ["predicted before it ran: error (%)", *evaluate.TITLES]
    head = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    return "\n".join([*head, *(f"| {' | '.join(row)} |" for row in rows)])


def _is_prediction(found: Any) -> bool:
    match found:
        case {"run": str(line), **ranges} if ": " in line:
            return all(isinstance(one := ranges.get(name), dict) and one.keys() >= _RANGE for name in evaluate.METRICS)
    return False


def _newest_runs(lines: Sequence[str], runs: Sequence[Run]) -> dict[str, Run]:
    """The newest run of each line that has one, completed on a GPU.

    A run may have been started with more settings from the shell than its line names. Of several lines that it holds,
    as `RUNG=9_rows` and `RUNG=9_rows BATCH_SIZE=8`, it is of the one that says most.
    """
    wanted = {line: (exercise, set(words.split())) for line in lines for exercise, words in [line.split(": ", 1)]}
    newest: dict[str, Run] = {}
    usable = [run for run in runs if run.state == "completed" and run.record.get("device") != "cpu"]
    for run in sorted(usable, key=lambda run: run.record["start_time"]):
        started, exercise = set((run.record.get("submission") or "").split()), run.record["exercise"]
        own = [line for line, (theirs, words) in wanted.items() if theirs == exercise and words <= started]
        if own:
            newest[max(own, key=lambda line: len(wanted[line][1]))] = run
    return newest


def _without_usual(line: str) -> str:
    """Without what all such lines say."""
    usual = ("EVAL_SIZE", "GENERATE_SIZE", "MAX_STEPS", "MODEL_INIT", "SAVE", "TRAIN_SIZE")
    return " ".join(word for word in line.split() if word.split("=")[0] not in usual)


def _percents(error: dict[str, Any]) -> list[str]:
    return [f"{error[name]:+.1f}" if name in error else "-" for name in evaluate.METRICS]
