"""Two ranks in RUN_DIR under the heartbeat's watch: rank 0 `saves` or `hashes` for longer than every time limit, rank 1
`holds` the interpreter's lock, or both do (`all_hold`), which only workshop/hang_watch.py can see.

Prints the exit code of each, negative for a signal; what rank N writes goes to RUN_DIR/rankN.out.
"""

import ctypes
import json
import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import torch
import torch.distributed as dist

from workshop import checkpoints, heartbeat, rank_files

HANG_TIMEOUT_S = 4.0
SAVE_S = 3 * HANG_TIMEOUT_S


def hold_the_lock() -> None:
    """For ever, and signals do not end it: a mutex locked twice, through ctypes' door that keeps Python's lock."""
    mutex = ctypes.create_string_buffer(64)
    library = ctypes.PyDLL(None)
    library.pthread_mutex_lock(mutex)
    library.pthread_mutex_lock(mutex)


def save(output: Path) -> None:
    """A file that grows, slowly."""
    output.mkdir()
    end_s = time.monotonic() + SAVE_S
    with (output / "model.safetensors").open("wb", buffering=0) as file:
        while time.monotonic() < end_s:
            file.write(b"w")
            time.sleep(0.05)


def look_at(output: Path) -> None:
    """A checkpoint's files, block by block, slowly; none grows."""
    output.mkdir()
    (output / "model.safetensors").write_bytes(b"w")
    end_s = time.monotonic() + SAVE_S
    while time.monotonic() < end_s:
        checkpoints.digest(output / "model.safetensors", heartbeat.beat)
        time.sleep(0.05)


def rank_of_two(rank: int, kind: str, run: Path) -> None:
    os.environ["RANK"] = str(rank)
    timeout = timedelta(seconds=HANG_TIMEOUT_S + 1)
    dist.init_process_group("gloo", init_method=f"file://{run}/store", rank=rank, world_size=2, timeout=timeout)
    group = dist.new_group([0, 1], timeout=timeout)  # as HYBRID_SHARD and ZeRO make them
    settings = SimpleNamespace(run_dir=run, output_path=run / "out", hang_timeout_s=HANG_TIMEOUT_S)
    heart = heartbeat.Heartbeat(settings)
    heart.on_train_begin()
    dist.all_reduce(torch.ones(1))
    if kind == "all_hold" or (kind == "holds" and rank == 1):
        hold_the_lock()
    if kind == "saves" and rank == 0:
        save(run / "out")
    if kind == "hashes" and rank == 0:
        look_at(run / "out")
    in_group = dist.barrier(group=group, async_op=True)
    dist.barrier()
    in_group.wait()
    heart.stop()


def main() -> None:
    kind, run = sys.argv[1], Path(os.environ["RUN_DIR"])
    rank_files.GRACE_S = 2.0
    children = []
    for rank in (0, 1):
        child = os.fork()
        if not child:
            output = os.open(run / f"rank{rank}.out", os.O_WRONLY | os.O_CREAT)
            os.dup2(output, 1)
            os.dup2(output, 2)
            rank_of_two(rank, kind, run)
            os._exit(0)
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1])]
    if kind == "holds":  # as torchrun does
        os.kill(children[1], signal.SIGKILL)
    codes.append(os.waitstatus_to_exitcode(os.waitpid(children[1], 0)[1]))
    print(json.dumps(codes))


if __name__ == "__main__":
    main()
