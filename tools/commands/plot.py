"""Draw the loss of an exercise's runs and their GPU memory, or a column of a table; of the benchmark, its grid."""

import argparse
import os
import sys
from pathlib import Path

from tools.commands.logs_option import add_logs_option, chosen_logs
from tools.errors import InputError
from tools.logs import nvidia_smi
from tools.logs.run import Run
from tools.logs.runs import find_runs
from tools.tables import drawing, grid_plot
from tools.tables import fill as tables
from tools.tables.repository import exercise_folder, no_runs

_GRID = "benchmark"  # its many short runs are compared as a grid, not curve by curve
# What the loss can be drawn over: the axis' label, and its values from the steps.
_OVER = {
    "step": ("step", lambda steps: steps.step),
    "examples": ("training examples", lambda steps: None if steps.samples is None else steps.samples.cumsum()),
    "time": ("time in steps (s)", lambda steps: steps.step_time_s.cumsum()),
}
# As many as matplotlib has colours that can be told apart.
_MOST_RUNS = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("exercise", help="the exercise's folder")
    add_logs_option(parser)
    parser.add_argument("--output", type=Path, default=None, metavar="FILE.png", help="default: EXERCISE.png")
    parser.add_argument("--over", choices=_OVER, default="step", help="what the loss is drawn over (default: step)")
    parser.add_argument("--table", metavar="N", help="draw a table of the exercise's README instead: bars, one per row")
    parser.add_argument("--column", default="Real tokens/s", help="the column to draw (default: %(default)s)")
    parser.add_argument("--plain", action="store_true", help="print only a Markdown link to the image, for a README")


def run(arguments: argparse.Namespace) -> int:
    exercise = exercise_folder(arguments.exercise)
    title = exercise.resolve().name
    logs = chosen_logs(arguments)
    runs = [run for run in find_runs(*logs, experiment=None if arguments.table else title) if not run.problem]
    if not runs:
        raise no_runs(logs, title)
    output = arguments.output or Path(f"{title}.png")
    if output.suffix not in (".png", ".svg", ".pdf"):
        raise InputError(f"--output {output}: the name must end in .png, .svg or .pdf")
    if not output.parent.is_dir():
        raise InputError(f"--output {output}: there is no folder {output.parent}")
    if arguments.table:
        what = draw_table(exercise / "README.md", arguments.table, arguments.column, runs, output)
        print(f"![{what}]({os.path.relpath(output, exercise)})" if arguments.plain else f"wrote {output}")
        return 0
    if title == _GRID:
        shows, notes = "Throughput, memory and step time", grid_plot.draw(runs, title, output)
    else:
        if len(runs) > _MOST_RUNS:
            print(f"the newest {_MOST_RUNS} of {len(runs)} runs are drawn", file=sys.stderr)
        shows, notes = "Training loss and GPU memory", draw(runs[-_MOST_RUNS:], title, output, arguments.over)
    for line in notes:
        print(line, file=sys.stderr)
    link = os.path.relpath(output, exercise)
    print(f"![{shows} of {title}]({link})" if arguments.plain else f"wrote {output}")
    return 0


def draw(runs: list[Run], title: str, output: Path, over: str = "step") -> list[str]:
    """Write the figure; gives a line for each run that has nothing to draw.

    Raises:
        InputError: no run has steps or GPU samples.
    """
    without = []
    with drawing.figure(output, 1, 2, (11, 4)) as (figure, (loss_axes, memory_axes)):
        figure.suptitle(title)
        for run in runs:
            what = run.record.get("config") or run.facts["rung"] or run.folder.parent.name
            label = f"{what} {run.folder.name}"
            gpu_logs = [nvidia_smi.read(path, with_time=True) for path in sorted(run.folder.glob("gpu_memory*.csv"))]
            steps = run.steps
            places = _OVER[over][1](steps) if steps is not None and steps.step.size else None
            if places is not None:
                loss_axes.plot(places, steps.loss, label=label)
            if gpu_logs:
                _draw_memory(memory_axes, gpu_logs, label)
            if places is None and not any(log.memory_used_mib.size for log in gpu_logs):
                without.append(f"{run.folder}: no steps.csv and no GPU log ({run.state})")
        if len(without) == len(runs):
            raise InputError(f"none of the {len(runs)} runs has steps.csv or a GPU log")
        drawing.label(loss_axes, _OVER[over][0], "training loss", "no log")
        drawing.label(memory_axes, "time since the log's start (s)", "GPU memory in use (MiB)", "no log")
    return without


def draw_table(readme: Path, number: str, column: str, runs: list[Run], output: Path) -> str:
    """Write a table's column as bars, a word instead of a bar where there is no figure; gives the title.

    Raises:
        InputError: no such table or column, or not one figure in it.
    """
    table = next((table for table in tables.definitions(readme) if table.number == number), None)
    if table is None or column not in table.header[table.label_columns :]:
        found = "no such table" if table is None else f"the columns {', '.join(table.header)}"
        raise InputError(f"--table {number} --column {column!r}: {readme} has {found}")
    place = table.header.index(column)
    cells = [row[place] for row in tables.fill(table, runs).cells]
    if not any(cell and cell.value is not None for cell in cells):
        raise InputError(f"Table {number}: not one figure in the column {column!r}")
    with drawing.figure(output, 1, 1, (9, 0.4 * len(cells) + 1)) as (_, axes):
        bars = axes.barh([row[0] for row in table.rows], [cell.value or 0 for cell in cells])
        axes.bar_label(bars, [cell.text for cell in cells], padding=3)
        axes.invert_yaxis()
        axes.margins(x=0.15)
        axes.set_xlabel(column)
    return f"Table {number}: {column}"


def _draw_memory(axes, logs: list[nvidia_smi.GpuLog], label: str) -> None:
    """One line per GPU; those of one run share a colour and a legend entry."""
    colour = None
    for log in logs:
        for index in sorted(set(log.gpu.tolist())):
            mine = log.gpu == index
            (line,) = axes.plot(log.time_s[mine], log.memory_used_mib[mine], color=colour, label=label)
            colour, label = line.get_color(), "_nolegend_"
