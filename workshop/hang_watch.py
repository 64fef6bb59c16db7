"""Ends a training all of whose ranks are stopped, or in C code that lets no thread run.

    python -m workshop.hang_watch RUN_DIR

Their own threads cannot notice that (workshop/heartbeat.py), so each node has this beside its loggers (loggers.sh). It
acts when for HANG_TIMEOUT_S no rank of the run, on any node, has written its heartbeat/rank-N.json and no save in
OUTPUT_DIR has grown: then it says so in train.out, lets this node's ranks print their stacks, and kills them. A rank
that runs notices a hang itself and ends within LONGEST_END_S: it has that time first.

Only its own sleeps count, no clock: SLURM stops it together with a job that it suspends, which has not hung. There is
nothing to watch before the first step, after the last rank's end, and with HANG_TIMEOUT_S=0: then there are no files.
"""

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from workshop import rank_files
from workshop.rank_files import LONGEST_END_S, RankFiles, hang_line, look_every_s, saved_bytes, send


def main() -> None:
    files = RankFiles(Path(sys.argv[1]))
    states = wait_for_hang(files, files.run_dir / os.environ.get("OUTPUT_DIR", ""))
    if here := files.here(states):  # else those of other nodes end the run
        timeout_s, step = states[min(here)]["timeout_s"], max(state["step"] for state in states.values())
        try:
            print(hang_line("", timeout_s, step, states), file=sys.stderr, flush=True)
            files.wake(here)
            time.sleep(rank_files.GRACE_S)
        finally:  # also where a full disk has no room for the line
            for pid in files.here(states).values():
                send(pid, signal.SIGKILL)


def wait_for_hang(files: RankFiles, output: Path) -> dict[int, dict[str, Any]]:
    """What the ranks had written before it."""
    before: Any = None
    idle_s, every_s = 0.0, 1.0
    while True:
        time.sleep(every_s)
        states = files.states()
        now = written(files), saved_bytes(output)
        idle_s = idle_s + every_s if states and now == before else 0.0
        before = now
        if states:
            timeout_s = states[min(states)]["timeout_s"]
            every_s = look_every_s(timeout_s)
            if idle_s >= timeout_s + LONGEST_END_S:
                return states


def written(files: RankFiles) -> dict[Path, int]:
    """When each rank has last written, ns; empty where that cannot be read."""
    try:
        return {path: path.stat().st_mtime_ns for path in files.folder.glob("rank-*.json")}
    except OSError:  # one is gone: a rank has ended
        return {}


if __name__ == "__main__":
    main()
