"""Where the exercises and their documents are."""

from collections.abc import Iterable
from pathlib import Path

from tools.errors import InputError, NoRunsError
from tools.logs.run import Run
from tools.tables.labels import blank_tables, exercises_of
from tools.tables.markdown import Table

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "logs" / "reference"
_DOCUMENTS = ("README.md", "RESULTS.md", "START.md", "FIGURES.md", "PLANNER.md")


def exercise_folder(name: str) -> Path:
    """The exercise's folder: as given, or in the repository.

    Raises:
        InputError: there is no such folder with a README.md.
    """
    for folder in (Path(name), ROOT / name):
        if (folder / "README.md").is_file():
            return folder
    names = ", ".join(folder.name for folder in exercises())
    raise InputError(f"{name} is no folder with a README.md; the exercises are: {names}")


def exercises(root: Path = ROOT) -> list[Path]:
    """The folders that have tables."""
    return sorted(path.parent for path in root.glob("*/tables.toml"))


def documents(root: Path = ROOT) -> list[Path]:
    """Every document that may have generated blocks; none in hidden folders and participants' runs."""
    places = ("", "[!.]*/", "logs/reference/")
    found = {path for name in _DOCUMENTS for place in places for path in root.glob(f"{place}{name}")}
    return sorted(found | set(root.glob("instructor/answers/*.md")))


def table_definitions(root: Path = ROOT) -> dict[str, Table]:
    """The blank table of each number."""
    return {table.number: table for folder in exercises(root) for table in blank_tables(folder)}


def no_runs(logs: list[Path], exercise: str | None, runs: Iterable[Run] = ()) -> NoRunsError:
    """Says that there is nothing to read yet, of the exercise or at all, and how to change that.

    Args:
        runs: those of other exercises, and those that cannot be read, whose exercise nobody knows.
    """
    nothing = f"no runs{f' of {exercise}' if exercise else ''} in {' or '.join(map(str, logs))}."
    if unreadable := [f"unreadable: {run.problem}" for run in runs if run.problem]:
        return NoRunsError("\n".join([nothing, *unreadable]))
    launchers = sorted((ROOT / exercise).glob("*.slurm")) if exercise else []
    launcher = launchers[0].relative_to(ROOT) if launchers else "EXERCISE/LAUNCHER.slurm"
    start = f"Start one with `sbatch {launcher}`, or without SLURM `bash {launcher}`."
    return NoRunsError(f"{nothing} {(exercise and borrowed_runs(exercise)) or start}")


def borrowed_runs(folder: str) -> str:
    """Of a folder whose tables are about runs of other exercises: whose, and what starts them; "" of another one.

    Their lists are named after it, as speed-ladder/models.txt.
    """
    place = ROOT / folder
    borrows = place in exercises() and not (place / "submit.txt").exists()
    lists = sorted(path.relative_to(ROOT) for path in ROOT.glob(f"*/{folder}*.txt")) if borrows else []
    if not lists:
        return ""
    owners = ", ".join(exercises_of(*blank_tables(place)))
    commands = " or ".join(f"`python -m tools submit --list {path}`" for path in lists)
    return f"The tables of {folder} are about runs of {owners}; {commands} starts them."
