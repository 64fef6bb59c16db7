"""`python -m workshop.preflight`: what a launcher looks at before it makes a run folder, without importing torch.

That this Python has the training's packages, and that no variable of the shell is nearly a setting's name.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path

from evidence.near_misses import complaint
from evidence.settings import LADDER_NAMES, LAUNCHER_NAMES
from workshop.errors import WorkshopError, no_package
from workshop.settings import Settings

REPO = Path(__file__).resolve().parents[1]
PACKAGES = ("torch", "transformers", "accelerate")
_EXPORT = re.compile(r"\bexport ([^#\n]*)")
_NAME = re.compile(r"(?:^|\s)([A-Z][A-Z0-9_]*)=")


def setting_names(repo: Path = REPO) -> set[str]:
    """Every variable that an exercise reads: the settings' names, and what its own env_vars.sh or tiny.env exports."""
    files = [*repo.glob("*/env_vars.sh"), repo / "tiny.env", repo / "cluster.env.example"]
    exports = [export for file in files if file.is_file() for export in _EXPORT.findall(file.read_text())]
    exported = {name for export in exports for name in _NAME.findall(export)}
    return {item.name.upper() for item in fields(Settings)} | LAUNCHER_NAMES | set(LADDER_NAMES) | exported


def check(shell: Mapping[str, str], packages: tuple[str, ...] = PACKAGES) -> None:
    """Raises WorkshopError for the first thing that stands in the way."""
    if missing := [name for name in packages if find_spec(name) is None]:
        raise WorkshopError(f"{no_package(', '.join(missing))}; or CONDA_SH_PATH and CONDA_ENV in cluster.env")
    if text := complaint(shell, setting_names()):
        raise WorkshopError(text)


if __name__ == "__main__":
    check(os.environ)
