"""What runs inside a job. Imports go one way: record <- settings <- data <- kernels <- training <- measure, and job <-
settings. launch checks a job before it runs; simulate computes a step without a GPU.
"""

import os
import sys
import time
import warnings
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from workshop.record.control import Control
from workshop.record.errors import InputError, no_package
from workshop.record.printable import one_line

_WAIT_S = 10  # for the node's process, which looks every 2 s


def _show(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    """Print an InputError as `error: …`, with the rank where there are several; any other error as Python does.

    A rank leaves it to its job's supervisor: all ranks would say the same, and their launcher would report each.
    """
    if isinstance(error, ModuleNotFoundError) and (text := no_package(str(error.name))):
        error = InputError(text)
    if not isinstance(error, InputError):
        return sys.__excepthook__(kind, error, traceback)
    rank = f" (rank {os.environ['RANK']})" if int(os.environ.get("WORLD_SIZE", "1")) > 1 else ""
    if {"RANK", "LAUNCHER"} <= os.environ.keys():
        with suppress(OSError):  # a full disk
            Control(Path(os.environ["RUN_DIR"])).say(one_line(f"refused error{rank}: {error}"))
            sys.stdout.flush()
            return time.sleep(_WAIT_S)
    print(f"error{rank}: {error}", file=sys.stderr)
    return None


sys.excepthook = _show
# Transformers 5.23 has a new name, which 5.17 does not know; DeepSpeed uses names that PyTorch replaces,
# and PyTorch 2.13 warns of them in the name of its own wrapper, several times in each step.
warnings.filterwarnings("ignore", "`gradient_checkpointing(_enable)?` is deprecated", FutureWarning)
warnings.filterwarnings("ignore", category=FutureWarning, module=r"deepspeed\.")
warnings.filterwarnings("ignore", r"`torch\.distributed\.\w+` is deprecated", FutureWarning, r"torch\..*c10d_logger")
