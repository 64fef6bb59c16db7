"""What stands in the way of PyTorch's compilation on first use, which DeepSpeed's optimizers rely on.

The process that compiles an extension holds a file named `lock` beside it, and others wait until it is gone. If it is
killed (a cancelled job, Ctrl-C), the file stays, and every later job waits for ever without a word.
"""

import os
import time
from pathlib import Path

import psutil

LONGEST_COMPILATION_S = 600  # far more than DeepSpeed's optimizers take


def remove_stale_locks(longest_s: float = LONGEST_COMPILATION_S) -> None:
    """Delete locks that nobody holds any more.

    A lock that no process of this machine has open may be another machine's with the same home folder: it counts as
    stale once it is older than any compilation.

    Args:
        longest_s: that age (s); shortened by tests.
    """
    from torch.utils.cpp_extension import get_default_build_root  # slow, and only DeepSpeed's runs need it

    root = Path(os.environ.get("TORCH_EXTENSIONS_DIR") or get_default_build_root())
    for lock in [*root.glob("*/lock"), *root.glob("*/*/lock")]:
        told = False
        while (age_s := _age_s(lock)) is not None and not is_open(lock):
            if age_s > longest_s:
                lock.unlink(missing_ok=True)  # another rank may have been faster
                print(f"warning: {lock}: removed; what compiled there was killed {age_s / 60:.0f} min ago")
                break
            if not told:
                print(
                    f"waiting for {lock}: another machine compiles there, or a killed job did; delete it if you "
                    f"know that none does, else it goes when it is {longest_s / 60:.0f} min old",
                    flush=True,
                )
                told = True
            time.sleep(1)


def is_open(path: Path) -> bool:
    """Whether a process of this machine has the file open; those of other users cannot be seen."""
    target = str(path.resolve())
    processes = psutil.process_iter(["open_files"])
    return any(file.path == target for process in processes for file in process.info["open_files"] or ())


def _age_s(path: Path) -> float | None:
    try:
        return time.time() - path.stat().st_mtime
    except FileNotFoundError:
        return None
