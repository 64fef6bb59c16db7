"""One exception for everything a participant can put right: it is shown as one line, without a traceback."""

import os
import sys
from pathlib import Path
from types import TracebackType

from workshop.run_folder.errors import InputError


class WorkshopError(InputError):
    """A mistake in the input. The message names the file, line or variable, what was found and what is expected."""


def no_package(name: str) -> str:
    return (
        f"{sys.executable} has no {name}; expected the workshop's environment: `make install` in "
        f"{Path(__file__).parents[1]} once, then `source .venv/bin/activate` there"
    )


def _show(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    """Print a WorkshopError as `error: …` (in a multi-process job with the rank), anything else as Python does; of a
    package that is not there, how one gets the environment.
    """
    if (
        isinstance(error, ModuleNotFoundError)
        and not (Path(__file__).parents[1] / str(error.name).split(".")[0]).is_dir()
    ):
        error, kind = WorkshopError(no_package(str(error.name))), WorkshopError
    if not issubclass(kind, InputError):
        return sys.__excepthook__(kind, error, traceback)
    rank = f" (rank {os.environ['RANK']})" if int(os.environ.get("WORLD_SIZE", "1")) > 1 else ""
    print(f"error{rank}: {error}", file=sys.stderr)
    return None


sys.excepthook = _show
