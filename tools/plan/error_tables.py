"""The errors of predictions as Markdown tables and as a picture."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

from tools import plots
from tools.plan.evaluate import METRICS, TITLES, Case

_BUSY_PERCENT = 70


_CLASSES = (f"step, GPU busy over {_BUSY_PERCENT} %", "step, GPU less busy", "step, CPU's optimizer")


def _class(case: Case) -> str:
    """The class of the case's step. The CPU's optimizer is a class: nvidia-smi calls a GPU busy that waits for it."""
    if case.workload.strategy.share_on_cpu:
        return _CLASSES[2]
    found = [run.figures.gpu_utilization_percent for run in case.runs]
    busy = statistics.median([value for value in found if value is not None] or [0]) > _BUSY_PERCENT
    return _CLASSES[0] if busy else _CLASSES[1]


def summary(cases: Sequence[Case]) -> str:
    """A row per family, and rows over all: mean error in percent (the worst), over configurations."""
    rows = [_row(family, [case for case in cases if case.family == family]) for family in _families(cases)]
    kinds: dict[str, Callable[[Case], bool]] = {
        "all, limited by the host": lambda case: case.predicted.time.parts.decided_by == "host",
        "**all**": lambda case: True,
    }
    rows += [_row(name, [case for case in cases if chosen(case)]) for name, chosen in kinds.items()]
    inside = " | ".join(_inside(cases, metric) for metric in METRICS)
    titles = (*TITLES, *_CLASSES)
    head = f"| | configurations | {' | '.join(titles)} |\n|{'---|' * (len(titles) + 2)}"
    return "\n".join([head, *rows, f"| runs inside the interval | | {inside} | {'| ' * len(_CLASSES)}"])


def configurations(cases: Sequence[Case]) -> str:
    """A row per configuration: predicted and measured allocated memory and step time."""
    titles = ("allocated: predicted (MiB)", "measured", "error (%)", "step: predicted (ms)", "measured", "error (%)")
    lines = [f"| family | configuration | {' | '.join(titles)} | limited by |", f"|{'---|' * (len(titles) + 3)}"]
    for case in sorted(cases, key=lambda case: case.family):
        facts, nodes = case.runs[0].facts, case.workload.setup.nodes
        gpus = f"x{facts['world_size']}" + (f" on {nodes} nodes" if nodes > 1 else "")
        words = (facts["rung"] or facts["config"], facts["model"], gpus, facts["precision"])
        name = " ".join(str(word) for word in (*words, f"{facts['batch_size']}x{facts['grad_acc']}") if word)
        cells = [
            *_cells(case, "peak_allocated_mib", 1, f"OOM | {case.predicted.verdict}"),
            *_cells(case, "step_time_s", 1000, "- | -"),
        ]
        lines.append(f"| {case.family} | {name} | {' | '.join(cells)} | {case.predicted.time.parts.decided_by} |")
    return "\n".join(lines)


def _cells(case: Case, metric: str, factor: float, without: str) -> tuple[str, str]:
    predicted = f"{case.predicted.ranges[metric].expected * factor:,.0f}"
    if metric not in case.measured:
        return predicted, without
    return predicted, f"{case.measured[metric] * factor:,.0f} | {case.errors_percent[metric]:+.1f}"


def out_of_memory(cases: Sequence[Case]) -> str:
    """Whether OOM was predicted where it happened, and only there."""
    ended = [case.predicted.verdict == "does not fit" for case in cases if case.ran_out]
    wrong = sum(case.predicted.verdict == "does not fit" for case in cases if not case.ran_out)
    completed = len(cases) - len(ended)
    return (
        f"Said not to fit: {sum(ended)} of the {len(ended)} configurations that ran out of memory, {wrong} of the "
        f"{completed} that completed."
    )


def _families(cases: Sequence[Case]) -> list[str]:
    return sorted({case.family for case in cases})


def _row(name: str, cases: Sequence[Case]) -> str:
    cells = [_error(cases, metric) for metric in METRICS]
    cells += [_error([case for case in cases if _class(case) == one], "step_time_s") for one in _CLASSES]
    return f"| {name} | {len(cases)} | {' | '.join(cells)} |"


def _error(cases: Sequence[Case], metric: str) -> str:
    errors = [abs(case.errors_percent[metric]) for case in cases if metric in case.measured]
    return f"{statistics.fmean(errors):.1f} ({max(errors):.0f})" if errors else "-"


def _inside(cases: Sequence[Case], metric: str) -> str:
    found = []
    for case in cases:
        expected = case.predicted.ranges[metric]
        found += [expected.least <= one[metric] <= expected.largest for one in case.each if metric in one]
    return f"{100 * statistics.fmean(found):.0f} %" if found else "-"


def draw(cases: Sequence[Case], output: Path) -> None:
    """Predicted over measured, a point per configuration."""
    with plots.figure(output, 2, 1, 9) as (drawn, axes):
        panels = (("peak_allocated_mib", "peak allocated (MiB)"), ("step_time_s", "step time (s)"))
        for one, (metric, title) in zip(axes, panels, strict=True):
            for family in _families(cases):
                own = [case for case in cases if case.family == family and metric in case.measured]
                measured = [case.measured[metric] for case in own]
                one.scatter(measured, [case.predicted.ranges[metric].expected for case in own], s=18, label=family)
            ends = one.get_xlim()
            one.plot(ends, ends, color="0.6", linewidth=1, label="as measured")
            one.set(xscale="log", yscale="log", title=title)
            for axis in (one.xaxis, one.yaxis):
                axis.set_major_formatter("{x:g}")
            plots.label(one, "measured", "predicted", "nothing measured")
        plots.legend_below(drawn, axes, 5)
