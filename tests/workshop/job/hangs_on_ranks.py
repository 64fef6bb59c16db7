"""Pairs of gloo ranks under HangWatch, each pair in a folder below FOLDER, all at the same time.

`stopped`: rank 1 is stopped. `hold`: both are in C code that keeps the interpreter's lock. `told`: rank 0 does nothing,
and rank 1 is told to end.

The limit is 1 s. As torchrun does, the parent ends rank 1 when rank 0 has ended. codes.json has the exit codes.
"""

import ctypes
import json
import os
import signal
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import torch.distributed as dist

from workshop.job import hangs

LIMIT_S = 1
ENDS = {"stopped": signal.SIGKILL, "hold": None, "told": signal.SIGTERM}  # what the parent sends to rank 1


def hold_the_lock() -> None:
    """For ever, and signals do not end it: a mutex locked twice, through ctypes' door that keeps Python's lock."""
    mutex = ctypes.create_string_buffer(64)
    library = ctypes.PyDLL(None)
    library.pthread_mutex_lock(mutex)
    library.pthread_mutex_lock(mutex)


def do_nothing() -> None:
    while True:
        time.sleep(1)


def wait_for_the_other() -> None:
    dist.barrier()


def rank_of_two(rank: int, kind: str, run: Path) -> None:
    os.environ["RANK"] = str(rank)
    dist.init_process_group("gloo", init_method=f"file://{run}/store", rank=rank, world_size=2)
    watch = hangs.HangWatch(SimpleNamespace(run_dir=run, output_path=run, hang_timeout_s=LIMIT_S, goes_on=False))
    watch.on_train_begin()
    dist.barrier()
    if kind == "stopped" and rank == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    if rank == 0 or kind == "hold":
        hangs.progress()
    {"stopped": wait_for_the_other, "hold": hold_the_lock}.get(kind, do_nothing)()


def pair(kind: str, run: Path) -> list[int]:
    children = []
    for rank in (0, 1):
        child = os.fork()
        if not child:
            rank_of_two(rank, kind, run)
            os._exit(0)
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1])]
    if ENDS[kind]:
        os.kill(children[1], ENDS[kind])
    return [*codes, os.waitstatus_to_exitcode(os.waitpid(children[1], 0)[1])]


def main() -> None:
    parents = {}
    for kind in ENDS:
        run = Path(sys.argv[1]) / kind
        (run / hangs.STACKS).mkdir(parents=True)
        parent = os.fork()
        if not parent:
            (run / "codes.json").write_text(json.dumps(pair(kind, run)))
            os._exit(0)
        parents[kind] = parent
    for parent in parents.values():
        os.waitpid(parent, 0)


if __name__ == "__main__":
    main()
