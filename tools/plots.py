"""Plots: a figure that is written to a file without a display, names of runs in it, and a grid of many short runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from run_folder.plural import counted
from run_folder.printable import printable
from tools.errors import InputError
from tools.logs.run import Run

if TYPE_CHECKING:
    import pandas as pd


def check_output(output: Path) -> None:
    """Raises InputError for a file that no plot can be written to, before anything is computed for it."""
    if output.suffix not in (".png", ".svg", ".pdf"):
        raise InputError(f"--output {output}: the name must end in .png, .svg or .pdf")
    if not output.parent.is_dir():
        raise InputError(f"--output {output}: there is no folder {output.parent}")


@contextmanager
def figure(output: Path, rows: int, columns: int, size_inches: tuple[float, float]) -> Iterator[tuple[Any, Any]]:
    """matplotlib's figure and axes, as pyplot.subplots gives them; written to `output` unless the block raises."""
    import matplotlib

    matplotlib.use("Agg")  # a login node has no display
    from matplotlib import pyplot

    drawn, axes = pyplot.subplots(rows, columns, figsize=size_inches, layout="constrained")
    try:
        yield drawn, axes
        for text in drawn.findobj(pyplot.Text):  # a name with dollar signs is no formula; a tick such as 10^3 is one
            text.set_parse_math(text.get_text().startswith(r"$\mathdefault"))
            text.set_text(printable(text.get_text()))
        drawn.savefig(output, dpi=120)
    finally:
        pyplot.close(drawn)


def label(axes: Any, x_label: str, y_label: str, if_empty: str) -> None:
    """Names and a grid; where nothing is drawn, why."""
    axes.set(xlabel=x_label, ylabel=y_label)
    axes.grid(alpha=0.3)
    if not axes.has_data():
        axes.text(0.5, 0.5, if_empty, ha="center", transform=axes.transAxes)


def legend_below(drawn: Any, axes: Iterable[Any], columns: int) -> None:
    """One legend for the figure, under its axes, where it covers nothing; a name on several axes stands once.

    It has one column where `columns` would be wider than the figure.
    """
    found = {name: line for one in axes for line, name in zip(*one.get_legend_handles_labels(), strict=True)}
    look = {"loc": "outside lower center", "fontsize": "small"}
    if not found:
        return
    legend = drawn.legend(found.values(), found, ncols=columns, **look)
    if legend.get_window_extent().width > drawn.bbox.width:
        legend.remove()
        drawn.legend(found.values(), found, **look)


def legend_above(axes: Any) -> None:
    """The axes' own legend over their top, where it covers nothing; a title needs a pad."""
    lines, _ = axes.get_legend_handles_labels()
    if lines:
        axes.legend(fontsize="small", loc="lower center", bbox_to_anchor=(0.5, 1), ncols=3, frameon=False)


def run_labels(runs: Sequence[Run]) -> list[str]:
    """A different name for each run: its facts that not all of them share; of equal ones also when they started."""
    all_parts = [_parts(run) for run in runs]
    known = [len({parts[place] for parts in all_parts}) > 1 for place in range(len(all_parts[0]))]
    first = [next((part for part in parts if part), "run") for parts in all_parts]
    names = [
        ", ".join(part for part, differs in zip(parts, known, strict=True) if differs and part) or own
        for parts, own in zip(all_parts, first, strict=True)
    ]
    for when in ("%d %b %H:%M", "%d %b %H:%M:%S"):
        count = Counter(names)
        found = [
            f"{name}, {run.start:{when}}" if count[name] > 1 else name for name, run in zip(names, runs, strict=True)
        ]
        if len(set(found)) == len(runs):
            return found
    return [f"{name} ({run.folder.name})" for name, run in zip(names, runs, strict=True)]


def configuration(run: Run) -> str:
    """Its rung or configuration; of a run without either how it shards; "" if it does not."""
    method = run.facts["method"]
    return run.facts["rung"] or run.facts["config"] or (method if method != "none" else None) or ""


def _parts(run: Run) -> tuple[str, ...]:
    """What a run is, the part that says most first; "" where it is not known."""
    facts = run.facts
    experiment = run.record.get("experiment") or ""
    return (
        configuration(run).replace("_", " ") if facts["rung"] else configuration(run),
        "" if facts["fault"] in (None, "none") else facts["fault"].replace("_", " "),
        facts["model"] or "",
        facts["precision"],
        f"batch {facts['batch_size']} x {facts['grad_acc']}" if facts["batch_size"] else "",
        _count(facts["train_examples"], "example"),
        _count(facts["epochs"], "epoch"),
        _count(facts["world_size"], "process", "processes"),
        _count(facts["nodes"], "node"),
        f"repeat {facts['repeat']}",
        "profiled" if facts["profiled"] else "",
        "with timers" if facts["timed"] else "",
        "" if experiment == facts["exercise"] else experiment,
        "" if run.state == "completed" else run.state,
    )


def _count(number: int | None, one: str, several: str = "") -> str:
    return "" if number is None else f"{number:,} {one if number == 1 else several or one + 's'}"


_TITLE = {"fontsize": "medium", "pad": 26}  # above the legend
_PRECISIONS = ("fp32", "fp16", "bf16")
_SIZE = ["world_size", "batch_size", "max_length", "model"]
_CELL = ["config", "precision", *_SIZE, "repeat"]


def draw_grid(runs: list[Run], title: str, output: Path) -> list[str]:
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
    with figure(output, rows, 2, (11, 4 * rows)) as (drawn, _):
        drawn.suptitle(f"{title}: throughput and memory")
        _bars(drawn.axes[0], done, "median_tokens_per_second", "tokens/s")
        _bars(drawn.axes[1], done, memory, label)
        if rows == 2:
            _curves(drawn.axes[2], along_batch, "rows per GPU")
            _curves(drawn.axes[3], along_length, "tokens per row")
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
    """Of every group of repeats the median, and what an error bar wants: the distances to the least and the largest."""
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
    legend_above(axes)


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


def _curves(axes: Any, lines: dict[str, pd.DataFrame], along: str) -> None:
    """Step time against one size."""
    for name, line in lines.items():
        axes.errorbar(line.index, line["median"], yerr=[line["down"], line["up"]], marker="o", capsize=3, label=name)
    label(axes, along, "step time (ms)", "runs of one size only")
    axes.set_title(f"Step time by {along}", **_TITLE)
    legend_above(axes)
