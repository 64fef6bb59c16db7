"""Where the exercises and their READMEs are."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from tools.errors import InputError, NoRunsError
from tools.logs.run import Run
from tools.tables import fill as tables
from tools.tables.markdown import Table

ROOT = Path(__file__).resolve().parents[2]
_DOCUMENTS = ("README.md", "RESULTS.md", "START.md", "PLANNER.md", "FIGURES.md")
_ANSWERS = Path("instructor", "answers")


def exercise_folder(name: str) -> Path:
    """The exercise's folder: as given, or in the repository.

    Raises:
        InputError: there is no such folder with a README.md.
    """
    for folder in (Path(name), ROOT / name):
        if (folder / "README.md").is_file():
            return folder
    exercises = sorted(path.parent.name for path in ROOT.glob("*/submit.txt"))
    found = "has no README.md" if Path(name).is_dir() or (ROOT / name).is_dir() else "is no folder"
    raise InputError(f"{name} {found}; the exercises are: {', '.join(exercises) or 'none yet'}")


def readmes(root: Path = ROOT) -> list[Path]:
    """Every README.md of the repository; hidden folders and participants' run folders are left out."""
    return [document for document in documents(root) if document.name == "README.md"]


def documents(root: Path = ROOT) -> list[Path]:
    """The READMEs and the documents without blank tables: RESULTS, START, PLANNER, FIGURES, the answer key."""
    return sorted(_documents(root, Path()))


def _documents(root: Path, below: Path) -> Iterator[Path]:
    for entry in os.scandir(root / below):
        if entry.is_dir() and not entry.name.startswith(".") and (below.name != "logs" or entry.name == "reference"):
            yield from _documents(root, below / entry.name)
        elif entry.name in _DOCUMENTS or (below == _ANSWERS and entry.name.endswith(".md")):
            yield root / below / entry.name


def table_definitions(root: Path = ROOT) -> dict[str, Table]:
    """The blank table of each number.

    Raises:
        InputError: two READMEs define the same table.
    """
    found: dict[str, Table] = {}
    for readme in readmes(root):
        for table in tables.definitions(readme):
            if table.number in found:
                first = found[table.number]
                raise InputError(
                    f"{readme}:{table.header_line}: Table {table.number} is also in {first.path}:{first.header_line}"
                )
            found[table.number] = table
    return found


def no_runs(logs: list[Path], exercise: str | None, runs: Iterable[Run] = ()) -> NoRunsError:
    """Says that there is nothing to read yet, of the exercise or at all, and how to change that.

    Args:
        runs: those of other exercises, and those that cannot be read, whose exercise nobody knows.
    """
    nothing = f"no runs{f' of {exercise}' if exercise else ''} in {' or '.join(map(str, logs))}."
    if unreadable := [run.problem for run in runs if run.problem]:
        return NoRunsError("\n".join([nothing, *(f"unreadable: {problem}" for problem in unreadable)]))
    launchers = sorted((ROOT / exercise).glob("*.slurm")) if exercise else []
    if launchers:
        launcher = f"{exercise}/{launchers[0].name}"
        return NoRunsError(f"{nothing} Start one with `sbatch {launcher}`, or without SLURM `bash {launcher}`.")
    if exercise and (borrowed := borrowed_runs(exercise)):
        return NoRunsError(f"{nothing} {borrowed}")
    return NoRunsError(f"{nothing} Start one with `sbatch` or `bash` and an exercise's launcher (*.slurm).")


def borrowed_runs(folder: str) -> str:
    """Says whose runs the tables of the folder are about, and what starts them; "" for an exercise with own runs.

    Their lists are named after it, as speed-ladder/models.txt.
    """
    place = ROOT / folder
    chapter = place.parent == ROOT and (place / "README.md").exists() and not (place / "submit.txt").exists()
    lists = sorted(path.relative_to(ROOT) for path in ROOT.glob(f"*/{folder}*.txt")) if chapter else []
    if not lists:
        return ""
    exercises = ", ".join(tables.exercises_of(tables.definitions(ROOT / folder / "README.md")))
    commands = " or ".join(f"`python -m tools submit --list {path}`" for path in lists)
    return f"The tables of {folder} are about runs of {exercises}; {commands} starts them."
