"""Where the exercises and their READMEs are."""

import os
from collections.abc import Iterator
from pathlib import Path

from tools.errors import InputError, NoRunsError
from tools.tables import fill as tables
from tools.tables.markdown import Table

ROOT = Path(__file__).resolve().parents[2]


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
    """The same with every RESULTS.md, which has the reference tables but defines none."""
    return sorted(_documents(root, Path()))


def _documents(root: Path, below: Path) -> Iterator[Path]:
    for entry in os.scandir(root / below):
        if entry.is_dir() and not entry.name.startswith(".") and (below.name != "logs" or entry.name == "reference"):
            yield from _documents(root, below / entry.name)
        elif entry.name in ("README.md", "RESULTS.md"):
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


def no_runs(logs: list[Path], exercise: str | None) -> NoRunsError:
    """Says that there is nothing to read yet, of the exercise or at all, and how to change that."""
    where = " or ".join(map(str, logs))
    if not exercise:
        return NoRunsError(
            f"no runs in {where}. Start one with `sbatch` or `bash` and an exercise's launcher (*.slurm)."
        )
    launchers = sorted((ROOT / exercise).glob("*.slurm"))
    launcher = f"{exercise}/{launchers[0].name}" if launchers else f"{exercise}/<launcher>.slurm"
    return NoRunsError(
        f"no runs of {exercise} in {where}. Start one with `sbatch {launcher}`, or without SLURM `bash {launcher}`."
    )
