"""Options that several commands have: which runs to read."""

import argparse
import csv
import shlex
import sys
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from tools.errors import InputError, NoRunsError
from tools.logs.run import Run
from tools.logs.runs import default_logs, find_runs, read_run
from tools.tables.markdown import spreadsheet_text
from workshop.record.exercises import REPO, find_exercise


def several(option: str, text: str, known: Collection[str]) -> list[str]:
    """The words of an option such as `--state oom,failed`. Raises InputError: one is not known."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    if unknown := [word for word in words if word not in known]:
        raise InputError(f"{option} {', '.join(unknown)}: unknown; known are {', '.join(known)}")
    return words


def add_logs_option(parser: argparse.ArgumentParser) -> None:
    """--logs and --owner."""
    folders = "folders of runs, such as /home/*/shardlab/logs, or a run's (default: $LOG_DIR, else logs/)"
    parser.add_argument("--logs", type=Path, nargs="+", action="extend", metavar="FOLDER", help=folders)
    parser.add_argument("--owner", metavar="NAME", help="only the runs in folders of this user")


def chosen_logs(arguments: argparse.Namespace) -> list[Path]:
    """The folders asked for, or the default one.

    Raises:
        InputError: one is an exercise's folder, written after --logs by mistake.
    """
    for folder in arguments.logs or ():
        if (folder / "submit.txt").exists() or (not folder.exists() and find_exercise(folder, "submit.txt")):
            raise InputError(f"--logs {folder}: an exercise's folder, not one of runs; write an exercise before --logs")
    return arguments.logs or [default_logs()]


def chosen_runs(arguments: argparse.Namespace, experiment: str | None = None) -> list[Run]:
    """The runs asked for, oldest first; with `experiment`, of that experiment or exercise only.

    Raises:
        InputError: a folder is not there, or none of its runs is the owner's.
    """
    runs = find_runs(*chosen_logs(arguments), experiment=experiment)
    chosen = [run for run in runs if arguments.owner in (None, run.owner)]
    if runs and not chosen:
        owners = ", ".join(sorted({run.owner for run in runs}))
        raise InputError(f"--owner {arguments.owner}: no run is in a folder of this user; there are runs of {owners}")
    return chosen


def single_run(folder: Path) -> Run:
    """The run in a folder; raises InputError if it cannot be read."""
    run = read_run(folder.resolve() if folder.is_symlink() else folder)
    if run.problem:
        raise InputError(run.problem)
    return run


def same_runs(arguments: argparse.Namespace) -> str:
    """The options with which the next command finds the same runs."""
    given = [("--logs", folder) for folder in arguments.logs or ()]
    given += [("--owner", arguments.owner)] if arguments.owner else []
    return "".join(f" {name} {shlex.quote(str(value))}" for name, value in given)


def print_csv(rows: Iterable[Sequence[object]]) -> None:
    """Print rows of cells, of which a spreadsheet computes none."""
    csv.writer(sys.stdout, lineterminator="\n").writerows(map(spreadsheet_text, row) for row in rows)


def no_runs(logs: Sequence[Path], exercise: str | None, runs: Iterable[Run] = ()) -> NoRunsError:
    """An error for logs without runs, which says how to start one.

    Args:
        runs: runs of other exercises, and unreadable ones.
    """
    nothing = f"no runs{f' of {exercise}' if exercise else ''} in {' or '.join(map(str, logs))}."
    if unreadable := [f"unreadable: {run.problem}" for run in runs if run.problem]:
        return NoRunsError("\n".join([nothing, *unreadable]))
    folder = find_exercise(exercise, "*.slurm", REPO) if exercise else None
    launchers = sorted(folder.glob("*.slurm")) if folder else []
    launcher = launchers[0].relative_to(REPO) if launchers else "EXERCISE/LAUNCHER.slurm"
    return NoRunsError(f"{nothing} Start one with `sbatch {launcher}`, or without SLURM `bash {launcher}`.")
