"""End a training's process once everything is written, without the interpreter's finalization."""

import atexit
import ctypes
import os
import sys
from typing import NoReturn


def end_process() -> NoReturn:
    """End this process with exit code 0, after what `atexit` has registered. Call it last: no `finally` runs after it.

    gloo's worker threads need the interpreter's lock to let go of a collective's tensors. They can outlive
    `destroy_process_group`, because other objects hold on to the group, DTensor's caches for example. Before version
    3.14, Python ends a thread that still waits for the lock when it finalizes. In a C++ destructor that aborts the
    process: "terminate called without an active exception", exit code -6, and a run with all its results has failed.
    """
    atexit._run_exitfuncs()  # DataLoader's workers, temporary folders, the compiler's processes
    sys.stdout.flush()
    sys.stderr.flush()
    ctypes.CDLL(None).fflush(None)  # what C libraries have printed: NCCL_DEBUG's lines
    os._exit(0)
