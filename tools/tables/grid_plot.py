"""The benchmark's plot: throughput and memory of each stage and precision with spread; step time against sizes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from evidence.counted import counted
from tools.errors import InputError
from tools.logs.run import Run
from tools.tables import drawing

if TYPE_CHECKING:
    import pandas as pd

_TITLE = {"fontsize": "medium", "pad": 26}  # above the legend
_PRECISIONS = ("fp32", "fp16", "bf16")
_SIZE = ["world_size", "batch_size", "max_length", "model"]
_CELL = ["config", "precision", *_SIZE, "repeat"]


def draw(runs: list[Run], title: str, output: Path) -> list[str]:
    """Write the figure: medians over the repeats, with bars from the least to the largest; gives what is left out.

    Raises:
        InputError: no run has completed in the precision asked for.
    """
    done, notes = _cells(runs)
    if done.empty:
        raise InputError(f"of {counted(len(runs), 'run')} none has completed in its precision; the first: {notes[0]}")
    memory, label = "peak_allocated_mib", "peak allocated GPU memory (MiB)"
    if done[memory].isna().all():  # no GPU
        memory, label = "peak_cpu_mib", "peak CPU memory (MiB)"
    along_batch, along_length = _lines(done, "batch_size", "max_length"), _lines(done, "max_length", "batch_size")
    rows = 2 if along_batch or along_length else 1
    with drawing.figure(output, rows, 2, (11, 4 * rows)) as (figure, _):
        figure.suptitle(f"{title}: throughput and memory")
        _bars(figure.axes[0], done, "median_tokens_per_second", "tokens/s")
        _bars(figure.axes[1], done, memory, label)
        if rows == 2:
            _curves(figure.axes[2], along_batch, "rows per GPU")
            _curves(figure.axes[3], along_length, "tokens per row")
    return notes


def _cells(runs: list[Run]) -> tuple[pd.DataFrame, list[str]]:
    """The runs to draw, as Table 17 takes them: the newest of each cell and repeat; and a line for each left out."""
    from tools.tables.frame import frame_of

    table = frame_of(runs).astype({"world_size": "Int64", "batch_size": "Int64", "precision": str, "ran_in": str})
    completed = table["state"] == "completed"
    done = completed & (table["ran_in"] == table["precision"])  # without a GPU fp16 trains in fp32
    notes = [
        f"{run.folder}: " + (f"ran in {run.ran_in}, not in {run.precision}" if ended else run.state.upper())
        for run, ended in zip(table[~done].itertuples(), completed[~done], strict=True)
    ]
    return table[done].drop_duplicates(_CELL, keep="last"), notes


def _spread(table: pd.DataFrame, by: list[str], figure: str) -> pd.DataFrame:
    """The median of every group of repeats, and the distances to its least and largest, for an error bar."""
    known = table.dropna(subset=[figure])
    found = known.groupby(by, observed=True, dropna=False)[figure].agg(["median", "min", "max"])
    return found.assign(down=found["median"] - found["min"], up=found["max"] - found["median"])


def _bars(axes: Any, table: pd.DataFrame, figure: str, label: str) -> None:
    """A bar for each configuration and precision of the model and size that most runs have."""
    sizes = [tuple(size) for size in table[_SIZE].itertuples(index=False)]
    size = max(sorted(set(sizes), key=str), key=sizes.count)
    groups = _spread(table[[own == size for own in sizes]], ["precision", "config"], figure)
    configs = sorted(groups.index.unique("config"))
    present = [precision for precision in _PRECISIONS if precision in groups.index.unique("precision")]
    for number, precision in enumerate(present):
        for place, config in enumerate(configs):
            if (precision, config) in groups.index:
                bar = groups.loc[(precision, config)]
                error, x = [[bar["down"]], [bar["up"]]], place + (number - (len(present) - 1) / 2) * 0.27
                name = "_" if place else precision
                axes.bar(
                    x, bar["median"], 0.25, color=f"C{_PRECISIONS.index(precision)}", label=name, yerr=error, capsize=3
                )
    axes.set(xticks=range(len(configs)), xticklabels=configs, ylabel=label)
    axes.set_title(f"{size[3]}, {_processes(size[0])}, batch {size[1]}, length {size[2]}", **_TITLE)
    axes.yaxis.set_major_formatter("{x:,.0f}")
    drawing.legend_above(axes)


def _processes(number: int) -> str:
    return counted(number, "process", "processes")


def _lines(table: pd.DataFrame, along: str, other: str) -> dict[str, pd.DataFrame]:
    """Step times (ms) by size, for each line: a cell of the other axes with more than one size."""
    by = ["model", "config", "precision", "world_size", other]
    groups = _spread(table, [*by, along], "step_time_ms")
    return {
        f"{model} {config} {precision}, {_processes(size)}, {other.split('_')[-1]} {fixed}": line.droplevel(by)
        for (model, config, precision, size, fixed), line in groups.groupby(by, observed=True, dropna=False)
        if len(line) > 1
    }


def _curves(axes: Any, lines: dict[str, pd.DataFrame], label: str) -> None:
    """Step time against one size."""
    for name, line in lines.items():
        axes.errorbar(line.index, line["median"], yerr=[line["down"], line["up"]], marker="o", capsize=3, label=name)
    drawing.label(axes, label, "step time (ms)", "runs of one size only")
    axes.set_title(f"Step time by {label}", **_TITLE)
    drawing.legend_above(axes)
