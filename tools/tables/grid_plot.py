"""The benchmark's plot: throughput and memory of each stage and precision with spread; step time against sizes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from tools.errors import InputError, UnavailableError
from tools.logs.run import Run
from tools.tables import drawing
from tools.tables.metrics import METRICS

_PRECISIONS = ("fp32", "fp16", "bf16")
_CELL = ("config", "precision", "model", "world_size", "batch_size", "max_length", "repeat")
Figures = dict[Any, list[float]]


def _figure(run: Run, metric: str) -> float | None:
    try:
        return METRICS[metric].value(lambda _: [run], {})
    except UnavailableError:
        return None


def _grouped(runs: list[Run], metric: str, key: Callable[[dict[str, Any]], Any]) -> Figures:
    """The repeats' figures of every group of runs."""
    groups: Figures = defaultdict(list)
    for run in runs:
        if (value := _figure(run, metric)) is not None:
            groups[key(run.facts)].append(value)
    return groups


def _spread(values: list[float]) -> tuple[float, float, float]:
    """Median, and what an error bar wants to know: the distances down to the least and up to the largest."""
    middle = median(values)
    return middle, middle - min(values), max(values) - middle


def _cells(runs: list[Run]) -> tuple[list[Run], list[str]]:
    """The runs to draw, as Table 17 takes them: the newest of each cell and repeat; and a line for each left out."""
    newest, notes = {}, []
    for run in runs:
        ran, asked = run.record.get("precision"), run.facts["precision"]
        if run.state != "completed":
            notes.append(f"{run.folder}: {run.state.upper()}")
        elif ran != asked:  # without a GPU fp16 trains in fp32, and is no figure of fp16
            notes.append(f"{run.folder}: ran in {ran}, not in {asked}")
        else:
            newest[tuple(run.facts[key] for key in _CELL)] = run
    return list(newest.values()), notes


def draw(runs: list[Run], title: str, output: Path) -> list[str]:
    """Write the figure: medians over the repeats, with bars from the least to the largest; gives what is left out.

    Raises:
        InputError: no run has completed in the precision asked for.
    """
    done, notes = _cells(runs)
    if not done:
        raise InputError(f"none of the {len(runs)} runs has completed in its precision; the first: {notes[0]}")
    memory, label = "peak_allocated", "peak allocated GPU memory (MiB)"
    if not _grouped(done, memory, str):  # no GPU
        memory, label = "peak_cpu", "peak CPU memory (MiB)"
    along_batch, along_length = _lines(done, "batch_size", "max_length"), _lines(done, "max_length", "batch_size")
    rows = 2 if along_batch or along_length else 1
    with drawing.figure(output, rows, 2, (11, 4 * rows)) as (figure, _):
        figure.suptitle(title)
        _bars(figure.axes[0], done, "median_tokens_per_second", "tokens/s")
        _bars(figure.axes[1], done, memory, label)
        if rows == 2:
            _curves(figure.axes[2], along_batch, "rows per GPU")
            _curves(figure.axes[3], along_length, "tokens per row")
    return notes


def _bars(axes: Any, runs: list[Run], metric: str, label: str) -> None:
    """A bar for each configuration and precision of the model and size that most runs have."""
    sizes = [tuple(run.facts[key] for key in ("world_size", "batch_size", "max_length", "model")) for run in runs]
    size = max(sorted(set(sizes), key=str), key=sizes.count)
    runs = [run for run, own in zip(runs, sizes, strict=True) if own == size]
    groups = _grouped(runs, metric, lambda facts: (facts["config"], facts["precision"]))
    configs = sorted({config for config, _ in groups})
    for shift, precision in enumerate(_PRECISIONS):
        for place, config in enumerate(configs):
            if values := groups.get((config, precision)):
                middle, down, up = _spread(values)
                error = [[down], [up]]
                x = place + (shift - 1) * 0.27
                axes.bar(x, middle, 0.25, color=f"C{shift}", label="_" if place else precision, yerr=error, capsize=3)
    axes.set(xticks=range(len(configs)), xticklabels=configs, ylabel=label)
    axes.set_title(f"{size[3]}, {size[0]} GPU(s), batch {size[1]}, length {size[2]}", fontsize="medium")
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.legend(fontsize="small")


def _lines(runs: list[Run], along: str, other: str) -> dict[str, dict[int, list[float]]]:
    """Step times (ms) of the repeats by size, for each line: a cell of the other axes with more than one size."""
    groups = _grouped(
        runs,
        "step_time",
        lambda facts: tuple(facts[key] for key in ("model", "config", "precision", "world_size", other, along)),
    )
    lines: dict[str, dict[int, list[float]]] = defaultdict(dict)
    for (model, config, precision, gpus, fixed, size), values in sorted(groups.items()):
        name = f"{model} {config} {precision}, {gpus} GPU(s), {other.split('_')[-1]} {fixed}"
        lines[name][size] = values
    return {name: points for name, points in lines.items() if len(points) > 1}


def _curves(axes: Any, lines: dict[str, dict[int, list[float]]], label: str) -> None:
    """Step time against one size."""
    for name, points in lines.items():
        middles, downs, ups = zip(*(_spread(values) for values in points.values()), strict=True)
        axes.errorbar(list(points), middles, yerr=[downs, ups], marker="o", capsize=3, label=name)
    drawing.label(axes, label, "step time (ms)", "runs of one size only")
