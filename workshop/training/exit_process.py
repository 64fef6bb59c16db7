"""End a training's process once everything is written, without the interpreter's finalization."""

import atexit
import ctypes
import multiprocessing
import os
import signal
import sys
from typing import NoReturn


def end_process() -> NoReturn:
    """End this process with exit code 0, after what `atexit` has registered. Call it last: no `finally` runs after it.

    gloo's worker threads need the interpreter's lock to let go of a collective's tensors. They can outlive
    `destroy_process_group`, because other objects hold on to the group, DTensor's caches for example. Before version
    3.14, Python ends a thread that still waits for the lock when it finalizes. In a C++ destructor that aborts the
    process: "terminate called without an active exception", exit code -6, and a run with all its results has failed.
    """
    # DataLoader's workers: at exit each would be waited for, 5 s. Its handler takes the end of one for a fault.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for worker in multiprocessing.active_children():
        worker.terminate()
        worker.join()
    atexit._run_exitfuncs()  # temporary folders, the compiler's processes
    sys.stdout.flush()
    sys.stderr.flush()
    ctypes.CDLL(None).fflush(None)  # what C libraries have printed: NCCL_DEBUG's lines
    os._exit(0)
