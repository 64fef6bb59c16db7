"""Fill the blank tables of an exercise's README from its runs and print them."""

import argparse
from pathlib import Path

from tools.commands.logs_option import add_logs_option, as_options, chosen_logs
from tools.errors import InputError
from tools.logs.run import Run
from tools.logs.runs import find_runs, read_run, save_figures
from tools.tables import export
from tools.tables import fill as tables
from tools.tables.metrics import METRICS
from tools.tables.repository import exercise_folder, no_runs


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("exercise", nargs="?", help="the exercise's folder")
    add_logs_option(parser)
    parser.add_argument("--run", type=Path, metavar="RUN_FOLDER", help="use this run only")
    parser.add_argument("--only", default="", metavar="N,N", help="only the tables of these numbers")
    parser.add_argument(
        "--format", choices=("markdown", "csv", "json"), default="markdown", help="csv, json: unrounded"
    )
    parser.add_argument("--plain", action="store_true", help="only the tables and their sources, no notes and hints")
    parser.add_argument("--explain", action="store_true", help="print the definition of every figure instead")


def run(arguments: argparse.Namespace) -> int:
    if arguments.explain:
        print(explanation())
        return 0
    if not arguments.exercise:
        raise InputError("fill needs an EXERCISE, e.g. `python -m tools fill baseline`, or --explain")
    if arguments.run and arguments.logs:
        raise InputError("--run and --logs exclude each other")
    readme = exercise_folder(arguments.exercise) / "README.md"
    logs = chosen_logs(arguments)
    wanted = _wanted(readme, arguments.only)
    runs = [_single_run(arguments.run)] if arguments.run else find_runs(*logs)
    exercises = tables.exercises_of(wanted)
    if not any(run.record.get("exercise") in exercises for run in runs):
        if arguments.run:
            found, about = runs[0].record["exercise"], ", ".join(exercises)
            raise InputError(f"{arguments.run}: is a run of {found}; the tables are about {about}")
        raise no_runs(logs, exercises[0])
    filled = [tables.fill(table, runs) for table in wanted]
    save_figures(runs)
    if arguments.format != "markdown":
        print(export.EXPORTS[arguments.format](filled), end="")
        return 0
    print("\n\n".join(f"{table.markdown()}\n\n{table.sources()}" for table in filled))
    if not arguments.plain:
        _print_hints(filled, [run for run in runs if run.problem], arguments)
    return 0


def _wanted(readme: Path, only: str) -> list[tables.Table]:
    found = tables.definitions(readme)
    if not found:
        raise InputError(f"{readme}: no blank table below a caption such as **Table 1** *Title*")
    numbers = [number.strip() for number in only.split(",") if number.strip()]
    known = [table.number for table in found]
    if missing := [number for number in numbers if number not in known]:
        raise InputError(f"--only {', '.join(missing)}: {readme} has the tables {', '.join(known)}")
    return [table for table in found if not numbers or table.number in numbers]


def _single_run(folder: Path) -> Run:
    run = read_run(folder)
    if run.problem:
        raise InputError(run.problem)
    return run


def _print_hints(filled: list[tables.FilledTable], damaged: list[Run], arguments: argparse.Namespace) -> None:
    notes = [f"Table {table.table.number}: {note}" for table in filled for note in table.notes]
    notes += [f"left out: {run.problem}" for run in damaged]
    if notes:
        print("\nNotes:")
        print("\n".join(f"- {note}" for note in dict.fromkeys(notes)))
    print(
        "\nnext: put your own figures into a copy of the tables, then "
        f"python -m tools check my_results.md{as_options(arguments.logs or [])}"
    )


def explanation() -> str:
    """Every figure's definition as a Markdown list."""
    return "\n".join(
        f"- `{name}`{f' ({metric.unit})' if metric.unit else ''}: {metric.definition}"
        for name, metric in METRICS.items()
    )
