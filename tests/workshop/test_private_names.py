"""A process ends well although native threads live on, and nothing is lost that Python's own end would have written.

And a save that fails changes no folder.
"""

import atexit
import ctypes
import json
import multiprocessing
import os
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader

from tests.launching import REPO, run
from workshop.private_names import end_process, save_in


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The lines of this file, run as a script."""
    own = {"PYTHONPATH": str(REPO), "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": ""}
    return run("python", __file__, tmp_path_factory.mktemp("ends"), **own).stdout.splitlines()


def test_rank_is_not_aborted_while_gloo_lets_go_of_a_tensor(printed: list[str]) -> None:
    """SIGABRT after all results were written: Python ended gloo's thread inside of C++ code."""
    assert json.loads(printed[0]) == [0, 0]


def test_nothing_is_lost_and_nobody_stays(printed: list[str]) -> None:
    _, first, living, registered, of_c = printed
    worker, folder = first.split()
    assert (registered, of_c) == ("registered", "of a C library")
    assert living == "0", "each of DataLoader's workers is waited for, 5 s"
    assert not Path(folder).exists()
    assert not Path(f"/proc/{worker}").exists()


class LastObject:
    """Python deletes it when it finalizes already; while it sleeps, other threads may have the lock."""

    def __del__(self, sleep=time.sleep) -> None:
        sleep(1.0)


def rank_of_two(rank: int, folder: Path, to_rank_0: tuple[int, int], to_rank_1: tuple[int, int]) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    group = dist.group.WORLD
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(group))  # outlives everything, as in DTensor's caches
    if rank == 0:
        group.allreduce([torch.ones(1)])
        sys.setswitchinterval(1000.0)  # gloo's thread gets the lock only where this one blocks without it
        atexit._clear()  # the last thing before Python finalizes is a call that keeps the lock until rank 1 is done
        atexit.register(ctypes.PyDLL(None).read, to_rank_0[0], ctypes.create_string_buffer(1), 1)
        atexit.register(os.write, to_rank_1[1], b"!")
    else:
        os.read(to_rank_1[0], 1)
        group.allreduce([torch.ones(1)]).wait()
        time.sleep(2.0)  # rank 0's thread comes so far, too
        os.write(to_rank_0[1], b"!")
    dist.destroy_process_group()


def main() -> None:
    """One of two ranks ends while gloo's thread waits for the interpreter's lock; prints their codes.

    Then this process ends, with things around that Python's own end would have tidied up.
    """
    pipes = os.pipe(), os.pipe()
    children = []
    for rank in (0, 1):
        child = os.fork()
        if not child:
            rank_of_two(rank, Path(sys.argv[1]), *pipes)
            return
        children.append(child)
    print(json.dumps([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]))
    global folder, batches
    folder = tempfile.TemporaryDirectory()
    batches = iter(DataLoader(range(4), num_workers=1, persistent_workers=True))
    next(batches)
    atexit.register(print, "registered")
    atexit.register(lambda: print(len(multiprocessing.active_children())))
    print(batches._workers[0].pid, folder.name)  # into a pipe: not flushed
    ctypes.CDLL(None).puts(b"of a C library")  # nor is this


def test_save_that_raises_leaves_the_trainers_folder_as_it_was(tmp_path: Path) -> None:
    """A full disk: whatever is saved next would lie among unfinished checkpoints."""
    seen = []

    def save(model: str, trial: None) -> None:
        seen.append((trainer.args.output_dir, model, trial))
        raise OSError("No space left on device")

    trainer = SimpleNamespace(args=SimpleNamespace(output_dir="out"), _save_checkpoint=save)
    save_in(trainer, tmp_path / "unfinished")
    with pytest.raises(OSError, match="No space"):
        trainer._save_checkpoint("model", None)
    assert (seen, trainer.args.output_dir) == ([(str(tmp_path / "unfinished"), "model", None)], "out")


if __name__ == "__main__":
    last_object = LastObject()
    main()
    end_process()
