"""Where the exercises and their documents are."""

from collections.abc import Iterable
from pathlib import Path

from tools.errors import InputError, NoRunsError
from tools.logs.run import Run
from tools.tables.markdown import Table
from tools.tables.table import blank_tables
from workshop.record.exercises import FURTHER, exercises_with, find_exercise
from workshop.record.exercises import REPO as ROOT

REFERENCE = ROOT / "logs" / "reference"
_DOCUMENTS = ("README.md", "RESULTS.md", "START.md", "PLANNER.md")


def exercise_folder(name: str) -> Path:
    """The exercise's folder, named as `lora`, `further/lora` or by a path.

    Raises:
        InputError: there is no such folder with a README.md.
    """
    if folder := find_exercise(name, "README.md"):
        return folder
    names = ", ".join(folder.name for folder in exercises())
    raise InputError(f"{name} is no folder with a README.md; the exercises are: {names}")


def exercises(root: Path = ROOT) -> list[Path]:
    """The folders that have tables."""
    return exercises_with("tables.py", root)


def documents(root: Path = ROOT) -> list[Path]:
    """Every document that may have generated blocks; none in hidden folders and participants' runs."""
    places = ("", "[!.]*/", f"{FURTHER}/*/", "logs/reference/")
    found = {path for name in _DOCUMENTS for place in places for path in root.glob(f"{place}{name}")}
    return sorted(found | set(root.glob("instructor/answers/*.md")))


def table_definitions(tiny: bool = False, root: Path = ROOT) -> dict[str, Table]:
    """The blank table of each number."""
    return {table.number: table for folder in exercises(root) for table in blank_tables(folder, tiny)}


def no_runs(logs: list[Path], exercise: str | None, runs: Iterable[Run] = ()) -> NoRunsError:
    """Says that there is nothing to read yet, of the exercise or at all, and how to change that.

    Args:
        runs: those of other exercises, and unreadable ones.
    """
    nothing = f"no runs{f' of {exercise}' if exercise else ''} in {' or '.join(map(str, logs))}."
    if unreadable := [f"unreadable: {run.problem}" for run in runs if run.problem]:
        return NoRunsError("\n".join([nothing, *unreadable]))
    folder = find_exercise(exercise, "*.slurm", ROOT) if exercise else None
    launchers = sorted(folder.glob("*.slurm")) if folder else []
    launcher = launchers[0].relative_to(ROOT) if launchers else "EXERCISE/LAUNCHER.slurm"
    return NoRunsError(f"{nothing} Start one with `sbatch {launcher}`, or without SLURM `bash {launcher}`.")
