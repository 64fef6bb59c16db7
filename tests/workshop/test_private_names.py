"""A process ends well although native threads live on, and nothing is lost that Python's own end would have written.

And a save that fails changes no folder.
"""

import atexit
import ctypes
import multiprocessing
import os
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from torch.utils.data import DataLoader

from tests.launching import REPO, run
from workshop.private_names import end_process, save_in


def test_nothing_is_lost_nobody_stays_and_python_does_not_finalize() -> None:
    """It would end gloo's threads inside of C++ code: SIGABRT after all results were written."""
    own = {"PYTHONPATH": str(REPO), "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": ""}
    first, living, registered, of_c = run("python", __file__, **own).stdout.splitlines()
    worker, folder = first.split()
    assert (registered, of_c) == ("registered", "of a C library")
    assert living == "0", "each of DataLoader's workers is waited for, 5 s"
    assert not Path(folder).exists()
    assert not Path(f"/proc/{worker}").exists()


class LastObject:
    """Python deletes it when it finalizes."""

    def __del__(self, write=os.write) -> None:
        write(1, b"finalizes\n")


def main() -> None:
    """With things around that Python's own end would have tidied up."""
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
