"""Where the exercises are: at the top of the repository and in further/. A run records its folder's last name."""

import re
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
FURTHER = "further"


def exercises_with(holding: str, root: Path = REPO) -> list[Path]:
    """The exercises' folders that hold a file of this name or pattern, in alphabetical order of their names."""
    found = {file.parent for place in ("*", f"{FURTHER}/*") for file in root.glob(f"{place}/{holding}")}
    return sorted(found, key=lambda folder: folder.name)


def find_exercise(name: str | Path, holding: str, *roots: Path) -> Path | None:
    """The folder meant by `lora`, `further/lora` or a path, seen from the first of the roots where it holds the file.

    Args:
        holding: a file's name or pattern.
        roots: by default the current folder, then the repository.
    """
    places = (root / part / name for root in roots or (Path(), REPO) for part in ("", FURTHER))
    return next((folder for folder in places if any(folder.glob(holding))), None)


def repository_of(exercise: Path) -> Path:
    """The folder of the repository, or of its copy, that an exercise's folder belongs to."""
    return exercise.parents[1] if exercise.parent.name == FURTHER else exercise.parent


def reads_argument(launcher: Path, number: int) -> bool:
    """Return whether the launcher's text names its argument of this number, as `$1`, `${2:-}` or `$@`."""
    return re.search(rf"\$(\{{?{number}|[@*])", launcher.read_text()) is not None
