"""Predictions beside what was measured: errors as Markdown tables and as a picture, and in cells of other tables."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from tools import plots
from tools.errors import InputError
from tools.logs.figures import FIGURES, Figure
from tools.logs.figures import figure as measured_figure
from tools.logs.run import Run, read_object
from tools.plan import accuracy
from tools.plan.accuracy import METRICS, Case
from tools.plan.predict import Prediction, Range, markdown
from tools.tables.fill import Cell, FilledTable

TITLES = ("allocated", "reserved", "nvidia-smi", "CPU memory", "step", "whole job")  # of the columns of METRICS
_BUSY_PERCENT = 70
_CLASSES = (f"step, GPU busy over {_BUSY_PERCENT} %", "step, GPU less busy", "step, CPU's optimizer")

# ---- errors of the cases ----


def summary(cases: Sequence[Case]) -> str:
    """A row per family, and rows over all: mean error in percent (the worst), over configurations."""
    by_host = [case for case in cases if case.predicted.parts.decided_by == "host"]
    rows = [*_by_family(cases), ("all, limited by the host", by_host), ("**all**", cases)]
    inside = " | ".join(_inside(cases, metric) for metric in METRICS)
    table = markdown(["", "configurations", *TITLES, *_CLASSES], [_row(*one) for one in rows])
    return f"{table}\n| runs inside the interval | | {inside} | {'| ' * len(_CLASSES)}"


def configurations(cases: Sequence[Case]) -> str:
    """A row per configuration: predicted and measured allocated memory and step time."""
    titles = ("allocated: predicted (MiB)", "measured", "error (%)", "step: predicted (ms)", "measured", "error (%)")
    rows = []
    for family, own in _by_family(cases):
        for case in own:
            run, nodes = case.runs[0], case.workload.nodes
            gpus = f"x{run.world_size}" + (f" on {nodes} nodes" if nodes > 1 else "")
            rows_per_step = f"{run.settings['batch_size']}x{run.settings['grad_acc']}"
            words = (run.rung or run.record.config, run.model, gpus, run.precision, rows_per_step)
            name = " ".join(str(word) for word in words if word)
            allocated = _cells(case, "peak_allocated_mib", 1, ("OOM", case.predicted.verdict))
            step = _cells(case, "step_time_s", 1000, ("-", "-"))
            rows.append([family, name, *allocated, *step, case.predicted.parts.decided_by])
    return markdown(["family", "configuration", *titles, "limited by"], rows)


def out_of_memory(cases: Sequence[Case]) -> str:
    """Whether OOM was predicted where it happened, and only there."""
    ended = [case for case in cases if case.ran_out]
    said = [case for case in cases if case.predicted.verdict == "does not fit"]
    right = sum(case.ran_out for case in said)
    return (
        f"Said not to fit: {right} of the {len(ended)} configurations that ran out of memory, {len(said) - right} of "
        f"the {len(cases) - len(ended)} that completed."
    )


def draw(cases: Sequence[Case], output: Path) -> None:
    """Predicted over measured, a point per configuration."""
    with plots.figure(output, 2, 1, 9) as (drawn, axes):
        panels = (("peak_allocated_mib", "peak allocated (MiB)"), ("step_time_s", "step time (s)"))
        for one, (metric, title) in zip(axes, panels, strict=True):
            for family, every in _by_family(cases):
                own = [case for case in every if metric in case.measured]
                measured = [case.measured[metric] for case in own]
                one.scatter(measured, [case.predicted.ranges[metric].expected for case in own], s=18, label=family)
            ends = one.get_xlim()
            one.plot(ends, ends, color="0.6", linewidth=1, label="as measured")
            one.set(xscale="log", yscale="log", title=title)
            for axis in (one.xaxis, one.yaxis):
                axis.set_major_formatter("{x:g}")
            plots.label(one, "measured", "predicted", "nothing measured")
        plots.legend_below(drawn, axes, 5)


def _by_family(cases: Sequence[Case]) -> Iterator[tuple[str, list[Case]]]:
    for family in sorted({case.family for case in cases}):
        yield family, [case for case in cases if case.family == family]


def _sizes(cases: Sequence[Case], metric: str) -> list[float]:
    return [abs(case.errors_percent[metric]) for case in cases if metric in case.measured]


def _row(name: str, cases: Sequence[Case]) -> list[str]:
    errors = [_sizes(cases, metric) for metric in METRICS]
    errors += [_sizes([case for case in cases if _class(case) == one], "step_time_s") for one in _CLASSES]
    cells = (f"{statistics.fmean(found):.1f} ({max(found):.0f})" if found else "-" for found in errors)
    return [name, str(len(cases)), *cells]


def _class(case: Case) -> str:
    """The class of the case's step. The CPU's optimizer is a class: nvidia-smi calls a GPU busy that waits for it."""
    if case.workload.strategy.share_on_cpu:
        return _CLASSES[2]
    found = [measured_figure(run, "gpu_utilization_percent") for run in case.runs]
    busy = statistics.median([value for value in found if value is not None] or [0]) > _BUSY_PERCENT
    return _CLASSES[0] if busy else _CLASSES[1]


def _cells(case: Case, metric: str, factor: float, without: tuple[str, str]) -> tuple[str, str, str]:
    predicted = f"{case.predicted.ranges[metric].expected * factor:,.0f}"
    if metric not in case.measured:
        return predicted, *without
    return predicted, f"{case.measured[metric] * factor:,.0f}", f"{case.errors_percent[metric]:+.1f}"


def _inside(cases: Sequence[Case], metric: str) -> str:
    found = []
    for case in cases:
        expected = case.predicted.ranges[metric]
        found += [expected.holds(one[metric]) for one in case.each if metric in one]
    return f"{100 * statistics.fmean(found):.0f} %" if found else "-"


# ---- kept before their lines ran: `plan --list FILE --format json` ----


def kept_table(file: Path, runs: Sequence[Run]) -> str:
    """A row per prediction whose line ran to its end: errors in percent; then their means, the worst, the intervals.

    Raises:
        InputError: the file holds no predictions, or none of its lines ran.
    """
    try:
        every = read_object(file)["runs"]
        kept = {one["run"]: {metric: Range(**one[metric]) for metric in METRICS} for one in every}
    except (KeyError, TypeError):
        kept = {}
    if not kept:
        raise InputError(f"{file}: no predictions; expected what plan --format json prints")
    newest = _newest_runs(list(kept), runs)
    found = [(line, kept[line], accuracy.measured_of(newest[line])) for line in kept if line in newest]
    if not found:
        raise InputError(f"{file}: none of its {len(kept)} lines completed on a GPU in these logs")
    rows = [[_without_usual(line)] for line, _, _ in found] + [["**mean (worst)**"], ["inside the interval"]]
    for metric in METRICS:
        pairs = [(ranges[metric], measured.get(metric)) for _, ranges, measured in found]
        errors = [expected.error_percent(value) if value else None for expected, value in pairs]
        sizes = [abs(error) for error in errors if error is not None]
        inside = sum(expected.holds(value) for expected, value in pairs if value)
        cells = ["-" if error is None else f"{error:+.1f}" for error in errors]
        cells += [f"{statistics.fmean(sizes):.1f} ({max(sizes):.1f})" if sizes else "-", f"{inside} of {len(sizes)}"]
        for row, cell in zip(rows, cells, strict=True):
            row.append(cell)
    return markdown(["predicted before it ran: error (%)", *TITLES], rows)


def _newest_runs(lines: Sequence[str], runs: Sequence[Run]) -> dict[str, Run]:
    """The newest run of each line that has one, completed on a GPU.

    A run may have been started with more settings from the shell than its line names. Of several lines that it holds,
    as `RUNG=9_rows` and `RUNG=9_rows BATCH_SIZE=8`, it is of the one that says most.
    """
    wanted = {line: set(line.split()) for line in lines}
    newest: dict[str, Run] = {}
    usable = [run for run in runs if run.state == "completed" and run.record.device != "cpu"]
    for run in sorted(usable, key=lambda run: run.record.start_time):
        started = {f"{run.record.exercise}:", *(run.record.submission or "").split()}
        own = [line for line, words in wanted.items() if words <= started]
        if own:
            newest[max(own, key=lambda line: len(wanted[line]))] = run
    return newest


def _without_usual(line: str) -> str:
    """Without what all such lines say."""
    usual = ("EVAL_SIZE", "GENERATE_SIZE", "MAX_STEPS", "MODEL_INIT", "SAVE", "TRAIN_SIZE")
    return " ".join(word for word in line.split() if word.split("=")[0] not in usual)


# ---- in the cells of `fill --predicted` and of `runs --figures` ----

PREFIX = "predicted_"
# A metric's name, the prediction's, and the factor between their units.
_SAME = {
    "peak_allocated_mib": ("peak_allocated_mib", 1),
    "peak_reserved_mib": ("peak_reserved_mib", 1),
    "peak_gpu_mib": ("nvidia_smi_mib", 1),
    "peak_cpu_mib": ("cpu_mib", 1),
    "step_time_ms": ("step_time_s", 1000),
    "tokens_per_second": ("tokens_per_second", 1),
    "median_tokens_per_second": ("tokens_per_second", 1),
    "samples_per_second": ("samples_per_second", 1),
    "total_runtime_s": ("total_runtime_s", 1),
}
NAMES = [PREFIX + name for name in _SAME]
Predictions = dict[Path, Prediction]


def predictions(runs: Sequence[Run]) -> Predictions:
    """Predictions by run folder, for runs on GPUs that completed or ran out of memory.

    Each leaves out its own configuration if there are enough others (tools/plan/accuracy.py).
    """
    return {run.folder: case.predicted for case in accuracy.cases(runs) for run in case.runs}


def figure(found: Predictions, run: Run, name: str) -> str:
    """The predicted figure as printed, without its unit; `name`: one of NAMES."""
    return _text(found[run.folder], FIGURES[name.removeprefix(PREFIX)]) if run.folder in found else "not predicted"


def is_predicted(name: str) -> bool:
    """True for the name of a prediction. Raises InputError for one that does not exist."""
    if name.startswith(PREFIX) and name not in FIGURES and name not in NAMES:
        raise InputError(f"--figures {name}: unknown; predictions are {', '.join(NAMES)}")
    return name in NAMES


def with_predictions(table: FilledTable, found: Predictions) -> FilledTable:
    """The table with the prediction beside every figure that has one."""

    def add(cell: Cell | None) -> Cell | None:
        if cell is None or cell.figure.name not in _SAME or not cell.runs or cell.runs[-1].folder not in found:
            return cell
        return replace(cell, text=f"{cell.text} (predicted {_text(found[cell.runs[-1].folder], cell.figure)})")

    return replace(table, cells=[[add(cell) for cell in row] for row in table.cells])


def _text(prediction: Prediction, wanted: Figure) -> str:
    source, factor = _SAME[wanted.name]
    return wanted.written(prediction.ranges[source].expected * factor / wanted.per_unit, unit_named=True)
