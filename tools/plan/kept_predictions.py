"""Predictions that were kept before their lines ran (`plan --list FILE --format json`), beside what these measured."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tools.errors import InputError
from tools.logs.folder import read_object
from tools.logs.run import Run
from tools.plan.evaluate import METRICS, TITLES, measured_of

_RANGE = {"expected", "least", "largest"}


def table(file: Path, runs: Sequence[Run]) -> str:
    """A row per prediction whose line ran to its end: errors in percent; then their means, the worst, the intervals.

    Raises:
        InputError: the file holds no predictions, or none of its lines ran.
    """
    predictions = read_object(file).get("runs")
    if not (isinstance(predictions, list) and predictions and all(map(_is_prediction, predictions))):
        raise InputError(f"{file}: no predictions; expected what plan --format json prints")
    newest = _newest_runs([one["run"] for one in predictions], runs)
    found = [(one, measured_of(newest[one["run"]])) for one in predictions if one["run"] in newest]
    if not found:
        raise InputError(f"{file}: none of its {len(predictions)} lines completed on a GPU in these logs")
    errors = [
        {name: 100 * (one[name]["expected"] / value - 1) for name, value in measured.items()} for one, measured in found
    ]
    rows = [[_words(one["run"]), *_cells(error)] for (one, _), error in zip(found, errors, strict=True)]
    by_metric = {name: [error[name] for error in errors if name in error] for name in METRICS}
    sizes = {name: [abs(value) for value in values] for name, values in by_metric.items()}
    means = (f"{statistics.fmean(one):.1f} ({max(one):.1f})" if one else "-" for one in sizes.values())
    rows.append(["**mean (worst)**", *means])
    inside = [
        sum(one[name]["least"] <= measured[name] <= one[name]["largest"] for one, measured in found if name in measured)
        for name in METRICS
    ]
    counts = [f"{count} of {len(sizes[name])}" for name, count in zip(METRICS, inside, strict=True)]
    rows.append(["inside the interval", *counts])
    head = f"| predicted before it ran: error (%) | {' | '.join(TITLES)} |\n|{'---|' * (len(TITLES) + 1)}"
    return "\n".join([head, *(f"| {' | '.join(row)} |" for row in rows)])


def _is_prediction(found: Any) -> bool:
    match found:
        case {"run": str(line), **ranges} if ": " in line:
            return all(isinstance(one := ranges.get(name), dict) and one.keys() >= _RANGE for name in METRICS)
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


def _words(line: str) -> str:
    """Without what all such lines say."""
    usual = ("EVAL_SIZE", "GENERATE_SIZE", "MAX_STEPS", "MODEL_INIT", "SAVE", "TRAIN_SIZE")
    return " ".join(word for word in line.split() if word.split("=")[0] not in usual)


def _cells(error: dict[str, Any]) -> list[str]:
    return [f"{error[name]:+.1f}" if name in error else "-" for name in METRICS]
