"""Pairs of gloo ranks under HangWatch, each pair in a folder below FOLDER, all at the same time.

`stopped`: rank 1 is stopped. `hold`: both are in C code that keeps the interpreter's lock. `told`: rank 0 does nothing,
and rank 1 is told to end. `save`: rank 0 saves for longer than the limit.
`loading`: both wait before the training begins, for one that never comes.
`two_meanings`: SIGTERM to rank 0 means to save, as under SLURM, and to end once the training is over.

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

from workshop.run_folder.run_record import update_run_record
from workshop.training import hangs
from workshop.training.saving import CheckpointWriter

LIMIT_S = 1
ENDS = {  # what the parent sends to rank 1
    **{"stopped": signal.SIGKILL, "hold": None, "save": None, "loading": None},
    **{"told": signal.SIGTERM, "two_meanings": signal.SIGTERM},
}


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


def save_then_end(watch: hangs.HangWatch) -> None:
    os.environ["SLURM_JOB_ID"] = "1"
    update_run_record(watch.settings.run_dir, model={"trained_parameters": 1})
    writer, state = CheckpointWriter(watch.settings, None), SimpleNamespace(is_world_process_zero=True, global_step=0)
    writer.on_train_begin(None, state, None)
    os.kill(os.getpid(), signal.SIGTERM)
    assert writer._signalled and not watch.stacks.stat().st_size
    writer.on_train_end(None, state, None)
    os.kill(os.getpid(), signal.SIGTERM)


def rank_of_two(rank: int, kind: str, run: Path) -> None:
    os.environ["RANK"] = str(rank)
    dist.init_process_group("gloo", init_method=f"file://{run}/store", rank=rank, world_size=2)
    limit_s = 60 if kind == "two_meanings" else LIMIT_S  # it is over as soon as it is done
    settings = SimpleNamespace(run_dir=run, output_path=run, hang_timeout_s=limit_s, resumes_own_run=False)
    if kind == "loading":
        hangs.START_S = 0
        hangs.watch(settings)
        do_nothing()
    watch = hangs.HangWatch(settings)
    watch.on_train_begin()
    dist.barrier()
    if kind == "save":
        watch.on_save()
        if rank == 0:
            time.sleep(2 * LIMIT_S)
        dist.barrier()
        watch.stop()
        return
    if kind == "two_meanings" and rank == 0:
        save_then_end(watch)
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
