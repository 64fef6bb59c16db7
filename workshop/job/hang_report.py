"""Which rank hung, read from what the ranks leave in the run folder (workshop/job/hangs.py). Standard library only.

stacks/rank-N.txt is empty while rank N trains. After a line `Timeout (0:30:00)!` it has the stacks of a rank that
reached its limit; without that line, of one that SIGTERM ended. The folder goes when the training ends
well; when the run goes on after another end, it becomes stacks-ATTEMPT.
"""

import contextlib
import re
import shutil
from pathlib import Path

from run_folder import steps_csv

STACKS = "stacks"
_TIMEOUT = re.compile(r"^Timeout \((\d+):(\d\d):(\d\d)", re.MULTILINE)


def hang_of(run_dir: Path) -> str:
    """`hang: rank N, no progress for S s after step K`; empty if no rank of the last attempt reached its limit.

    N reached it first, and may have waited for another: see all stacks. Ranks that were stopped or killed left none.
    """
    files = sorted(run_dir.glob(f"{STACKS}/rank-*.txt"), key=lambda file: file.stat().st_mtime)
    for file in files:
        if found := _TIMEOUT.search(file.read_text(errors="replace")):
            hours, minutes, seconds = map(int, found.groups())
            limit_s = 3600 * hours + 60 * minutes + seconds
            silent = sorted(_rank(other) for other in files if not other.stat().st_size)
            stopped = "".join(f"; no stack from rank {rank}" for rank in silent)
            return f"hang: rank {_rank(file)}, no progress for {limit_s} s after step {last_step(run_dir)}{stopped}"
    return ""


def write_hang(run_dir: Path) -> None:
    """Add the line of `hang_of`, once, to train.out, where run_folder/causes.py looks."""
    if line := hang_of(run_dir):
        text = (run_dir / "train.out").read_text(errors="replace")
        with contextlib.suppress(OSError), (run_dir / "train.out").open("a") as log:  # a full disk is then the cause
            if not text.endswith(f"{line}\n"):
                log.write(f"{line}\n" if text.endswith("\n") else f"\n{line}\n")


def keep_stacks(run_dir: Path, attempt: int) -> None:
    """Rename the folder of an attempt that is over to stacks-ATTEMPT; without a stack in it, delete it."""
    stacks = run_dir / STACKS
    if any(file.stat().st_size for file in stacks.glob("*")):
        stacks.rename(run_dir / f"{STACKS}-{attempt}")
    else:
        shutil.rmtree(stacks, ignore_errors=True)


def _rank(file: Path) -> int:
    return int(file.stem.removeprefix("rank-"))


def last_step(run_dir: Path) -> int:
    """Of steps.csv; 0 without a step."""
    steps = run_dir / "steps.csv"
    return max((int(row["step"]) for _, row in steps_csv.rows(steps)), default=0) if steps.exists() else 0
