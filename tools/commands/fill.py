"""Fill the blank tables of an exercise's README from its runs and print them."""

import argparse
from pathlib import Path

from tools.commands.options import add_logs_option, chosen_logs, chosen_runs, no_runs, print_csv, same_runs, several
from tools.errors import InputError, NoRunsError
from tools.logs.run import Run
from tools.tables import forms, markdown
from tools.tables.comparisons import FIGURES
from tools.tables.fill import fill, left_out_lines, sources
from tools.tables.markdown import Grid
from tools.tables.table import blank_cells, blank_tables, exercise_folder, form_tables

_LEGEND = "`?` is yours to write; `fill` prints the other cells. Several predictions in a cell: `12; 6`."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("exercise", nargs="?", help="the exercise's folder")
    add_logs_option(parser)
    parser.add_argument("--only", default="", metavar="N,N", help="only the tables of these numbers")
    parser.add_argument("--format", choices=("markdown", "csv"), default="markdown", help="csv: unrounded")
    parser.add_argument("--tiny", action="store_true", help="the tables, filled from tiny runs (tiny.env)")
    parser.add_argument("--blank", action="store_true", help="print the form: the README's tables")
    parser.add_argument("--all", action="store_true", help="with --blank: every row of every table")
    parser.add_argument("--plain", action="store_true", help="only the tables and their sources, no notes and hints")
    parser.add_argument("--explain", action="store_true", help="the definition of every figure, or the EXERCISE's")


def main(arguments: argparse.Namespace) -> int:
    if not arguments.exercise:
        if not arguments.explain:
            raise InputError("fill needs an EXERCISE, e.g. `python -m tools fill baseline`, or --explain")
        for name, figure in FIGURES.items():
            in_commands = f"`{name}`" + (f", {figure.unit}" if figure.unit else "")
            print(f"- **{'; '.join(figure.titles)}** ({in_commands}): {figure.definition}")
        return 0
    folder = exercise_folder(arguments.exercise)
    if arguments.explain or arguments.blank:
        print(_form(folder, arguments))
    else:
        _print_filled(folder, arguments)
    return 0


def _form(folder: Path, arguments: argparse.Namespace) -> str:
    """The exercise's form; with --explain only the list of its figures."""
    if arguments.blank and (form := folder / "form.md").exists():
        return form.read_text(encoding="utf-8").rstrip()
    every = arguments.only if arguments.explain else arguments.all
    tables = _chosen((blank_tables if every else form_tables)(folder, arguments.tiny), folder, arguments.only)
    if arguments.explain:
        return _where_read(tables)
    by_hand = [table for table in tables if table.by_hand]
    parts = [markdown.TINY_LINE if arguments.tiny else ""]
    if not arguments.only:
        parts += [_LEGEND if by_hand else "", forms.predictions_form(folder, arguments.tiny)]
    parts += [*map(markdown.render, tables), _where_read(by_hand) if by_hand else ""]
    return "\n\n".join(filter(None, parts))


def _print_filled(folder: Path, arguments: argparse.Namespace) -> None:
    runs, logs = chosen_runs(arguments), chosen_logs(arguments)
    wanted = _chosen(blank_tables(folder, arguments.tiny), folder, arguments.only)
    command = f"python -m tools fill {arguments.exercise}{same_runs(arguments)}"
    filled = [fill(table, runs) for table in wanted]
    filled_in = [table for table in filled if table.runs]
    if not filled_in:
        nothing = f"no table of {arguments.exercise} is about the runs in {' or '.join(map(str, logs))}:"
        raise none_about(wanted, runs, logs, nothing, command)
    if arguments.format == "csv":
        rows = [
            (table.table.number, " / ".join(labels), column, cell.value, cell.figure.unit, cell.text)
            for table in filled
            for (*labels, column), cell in table.cells.items()
        ]
        print_csv([("table", "row", "column", "value", "unit", "text"), *rows])  # unrounded; text: why there is none
        return
    if arguments.tiny:
        print(f"{markdown.TINY_LINE}\n")
    if arguments.plain:
        print("\n\n".join([*(table.markdown() for table in filled_in), sources(filled_in, most=1)]))
        return
    print("\n\n".join(f"{table.markdown()}\n\n{sources([table])}" for table in filled_in))
    tables_of: dict[str, list[str]] = {}  # by note
    for table in filled:
        for note in table.notes:
            tables_of.setdefault(note, []).append(table.table.number)
    notes = [f"- Table {', '.join(numbers)}: {note}" for note, numbers in tables_of.items()]
    if without := [table.table.number for table in filled if not table.runs]:
        notes.append(f"- Table {', '.join(without)}: no run yet")
    notes += [f"- in no table: {line}" for line in left_out_lines(wanted, runs, command)]
    notes += [f"- left out: {run.problem}" for run in runs if run.problem]
    if notes:
        print("\n".join(["\nNotes:", *notes]))
    print("\nnext: write your own figures into a copy of the tables, and compare:")
    form = Path(f"my_results_{folder.name}.md")  # ignored by git in every folder
    if not form.exists():  # never overwrite a participant's file
        print(f"  python -m tools fill {arguments.exercise}{' --tiny' if arguments.tiny else ''} --blank > {form}")
    print(f"  python -m tools check {form}{same_runs(arguments)}")


def none_about(tables: list[Grid], runs: list[Run], logs: list[Path], nothing: str, command: str) -> NoRunsError:
    """Says that no table is about a run in `logs`: `nothing` and why, if there are runs of the exercise."""
    if lines := left_out_lines(tables, runs, command):
        return NoRunsError("\n- ".join([nothing, *lines]))
    return no_runs(logs, tables[0].definition.exercises[0], runs)


def _where_read(tables: list[Grid]) -> str:
    """A folded list: each figure of the tables, with its file and key."""
    numbers = ", ".join(table.number for table in tables)
    lines = [f"<details><summary>Where each figure of Table {numbers} is read</summary>", ""]
    asked = {figure.name: figure for table in tables for figure, _ in blank_cells(table).values()}
    lines += [f"- **{'; '.join(figure.titles)}**: {figure.definition}" for figure in asked.values()]
    return "\n".join([*lines, "", "</details>"])


def _chosen(tables: list[Grid], folder: Path, only: str) -> list[Grid]:
    if not tables:
        raise InputError(f"{folder / 'README.md'}: no blank table below a caption such as **Table 1** *Title*")
    numbers = several("--only", only, [table.number for table in tables])
    return [table for table in tables if not numbers or table.number in numbers]
