"""Draw the loss of an exercise's runs and their GPU memory, or a column of a table."""

import argparse
import os
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from tools import plots
from tools.commands.options import add_logs_option, chosen_logs, chosen_runs, no_runs
from tools.errors import InputError, NoRunsError
from tools.logs.run import Run
from tools.logs.runs import default_logs
from tools.tables.fill import fill
from tools.tables.markdown import TINY_LINE
from tools.tables.table import blank_tables, exercise_folder, tables_py
from workshop.record.printable import counted

# As many as matplotlib has colours that can be told apart.
_MOST_RUNS = 10
_COLUMN = "Real tokens/s"  # where a table has it, it is what its rows are compared in


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("exercise", help="the exercise's folder")
    add_logs_option(parser)
    file = "default: EXERCISE.png in $LOG_DIR or logs/, which git ignores"
    parser.add_argument("--output", type=Path, metavar="FILE.png", help=file)
    over = "what the loss is drawn over (default: step)"
    parser.add_argument("--over", choices=plots.OVER, default="step", help=over)
    parser.add_argument("--table", metavar="N", help="draw a table of the exercise instead: bars, one per row")
    columns = f"the columns to draw, several as ends within a bar (default: {_COLUMN}, or the table's first)"
    parser.add_argument("--column", nargs="+", metavar="COLUMN", help=columns)
    parser.add_argument("--tiny", action="store_true", help="only tiny runs (tiny.env)")
    parser.add_argument("--plain", action="store_true", help="print only a Markdown link to the image, for a README")


def main(arguments: argparse.Namespace) -> int:
    exercise = exercise_folder(arguments.exercise)
    title = exercise.resolve().name
    logs = chosen_logs(arguments)
    runs = [run for run in chosen_runs(arguments, None if arguments.table else title) if not run.problem]
    if not runs:
        raise no_runs(logs, title)
    if arguments.tiny and not (runs := [run for run in runs if run.tiny]):
        raise NoRunsError(f"no run of {title} is tiny: leave out --tiny")
    name = title + (f"-table-{arguments.table}" if arguments.table else "")
    output = arguments.output or default_logs() / f"{name}.png"
    if not arguments.output:
        output.parent.mkdir(parents=True, exist_ok=True)
    plots.check_output(output)
    if arguments.table:
        shows = draw_table(exercise, arguments, runs, output)
    else:
        if len(runs) > _MOST_RUNS:
            print(f"the newest {_MOST_RUNS} of {len(runs)} runs are drawn", file=sys.stderr)
        shows = draw(runs[-_MOST_RUNS:], title, output, arguments.over)
    print(f"![{shows}]({os.path.relpath(output, exercise)})" if arguments.plain else f"wrote {output}")
    return 0


def draw(runs: list[Run], title: str, output: Path, over: str) -> str:
    """Write the picture and say which run has nothing to draw; gives what it shows.

    Raises:
        InputError: no run has steps or samples of memory.
    """
    gpus = any(name.startswith("gpu_memory") for run in runs for name in run.files)
    memory, key = ("GPU memory", "gpu_memory") if gpus else ("CPU memory", "cpu_memory")
    with plots.drawing(output, 2, 8) as (figure, (loss_axes, memory_axes)):
        figure.suptitle(title)
        loss_axes.set_title("Training loss", fontsize="medium")
        memory_axes.set_title(memory, fontsize="medium")
        for colour, run in enumerate(runs):
            look = {"color": f"C{colour}", "label": plots.run_label(run) + _resumed(run)}
            charts = [chart for chart in plots.charts(run, over) if chart.key in ("loss", key)]
            if not charts:
                print(f"{run.folder}: no steps.csv and no log of memory ({run.state})", file=sys.stderr)
            for chart in charts:
                if chart.problem:
                    print(chart.problem, file=sys.stderr)
                for number, line in enumerate(chart.lines):
                    if chart.key == "loss":
                        mark = {"linestyle": ":", "label": None} if number else {}  # where the run was resumed
                        loss_axes.plot(line.x, line.y, **look | mark)
                    elif not line.name.endswith("PSS"):
                        memory_axes.plot(line.x, line.y, **look)
        if not (loss_axes.has_data() or memory_axes.has_data()):
            raise InputError(f"of {counted(len(runs), 'run')} none has steps.csv or a log of memory")
        unit = "GPU memory in use (MiB)" if gpus else "CPU memory, sum of the processes' RSS (MiB)"
        plots.label(loss_axes, plots.OVER[over][0], "training loss", "no log")
        plots.label(memory_axes, "time since the log's start (s)", unit, "no log")
        plots.legend_below(figure, (loss_axes, memory_axes))
    return f"Training loss and {memory} of {title}"


def _resumed(run: Run) -> str:
    """For the legend: how attempts ended, at the dotted lines where the run was resumed."""
    *before, last = ["", *(text for _, text in run.resumptions)]
    return f": {last}" + (f" ({len(before)} times)" if len(before) > 1 else "") if last else ""


def draw_table(exercise: Path, arguments: argparse.Namespace, runs: list[Run], output: Path) -> str:
    """Write a table's column as bars, a word instead of a bar where there is no figure; gives the title.

    Of several columns a row has one bar, in which each column's colour ends at its figure.

    Raises:
        InputError: no such table or column, or not one figure in it.
    """
    number = arguments.table
    table = next((table for table in blank_tables(exercise) if table.number == number), None)
    if table and arguments.tiny:
        table = replace(table, tiny=True, caption=f"{table.caption}\n{TINY_LINE}")
    columns = table.header[table.label_columns :] if table else []
    drawn = arguments.column or [_COLUMN if _COLUMN in columns else columns[0] if columns else ""]
    if unknown := [column for column in drawn if column not in columns]:
        known = "no such table" if table is None else f"the columns {', '.join(columns)}"
        raise InputError(f"--table {number} --column {unknown[0]!r}: {exercise} has {known}")
    filled = fill(table, runs).cells
    cells = {column: [filled.get((*row[: table.label_columns], column)) for row in table.rows] for column in drawn}
    if not any(cell and cell.value is not None for of_column in cells.values() for cell in of_column):
        hint = "" if arguments.tiny else "; of tiny runs: --tiny"
        raise InputError(f"Table {number}: not one figure in the column {drawn[0]!r}{hint}")
    in_words = getattr(tables_py(exercise), "in_words", str)  # a group, if any, stands before a colon
    names = [in_words(" / ".join(dict.fromkeys(row[: table.label_columns]))) for row in table.rows]
    groups = [name.rpartition(": ")[0] for name in names]
    places = [0.0]  # of the bars, with a gap between groups
    for before, after in pairwise(groups):
        places.append(places[-1] + (1 if before == after else 1.6))
    with plots.drawing(output, 1, 0.4 * (places[-1] + 1) + 1.4) as (_, axes):
        for column in drawn:
            values = [cell.value or 0 for cell in cells[column]]
            bars = axes.barh(places, values, label=column)
            if len(drawn) > 1:
                for bar in bars:
                    bar.set_zorder(1 + 1 / (1 + bar.get_width()))  # a shorter one lies on a longer one
        axes.set_yticks(places, names)
        axes.bar_label(bars, [cell.text for cell in cells[drawn[-1]]], padding=3)
        axes.invert_yaxis()
        axes.margins(x=0.15)
        axes.xaxis.set_major_formatter("{x:,g}")
        axes.set(xlabel=column if len(drawn) == 1 else "", title=table.caption.replace("*", ""))
        if len(drawn) > 1:
            axes.legend()
    return f"Table {number}: {', '.join(drawn)}"
