"""heartbeat/rank-N.json: what each rank writes while it trains, so that others can tell whether it runs.

The ranks read it (workshop/heartbeat.py), and a process beside them (workshop/hang_watch.py), which must stay small: so
nothing here needs more than the standard library.
"""

import contextlib
import json
import os
import signal
import socket
import time
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from workshop.checkpoints import UNFINISHED
from workshop.run_record import HEARTBEAT

DUMP = signal.SIGUSR2  # prints the stacks of all threads of a rank in C code that lets no other thread run
GRACE_S = 5.0  # for a rank to print its stacks
LONGEST_END_S = 30.0  # for the report of a hang; then the process ends, wherever that is stuck


def look_every_s(timeout_s: float) -> float:
    """How often a rank writes its file, and the others look."""
    return min(10.0, timeout_s / 10)


def saved_bytes(output: Path) -> int:
    """Size of what saves write in OUTPUT_DIR: the model's files, and the folder of a checkpoint that is not finished.

    Of other folders there, such as those of other runs, nothing: they grow without this one. A file that goes
    meanwhile is a change too.
    """
    size = 0
    with contextlib.suppress(OSError):
        for path in chain(output.glob("*"), (output / UNFINISHED).rglob("*"), output.glob("global_step*/*")):
            size += path.lstat().st_size  # also of a link that leads nowhere
    return size


class RankFiles:
    """The heartbeat files of one run."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir, self.folder = run_dir, run_dir / HEARTBEAT

    def file(self, rank: int) -> Path:
        return self.folder / f"rank-{rank}.json"

    def request(self, rank: int) -> Path:
        """Exists while somebody waits for this rank's stacks."""
        return self.folder / f"rank-{rank}.dump"

    def states(self) -> dict[int, dict[str, Any]]:
        """What each rank has written last, as far as it can be read."""
        found = {}
        with contextlib.suppress(OSError, ValueError):
            for path in sorted(self.folder.glob("rank-*.json")):
                found[int(path.stem.split("-")[1])] = json.loads(path.read_text())
        return found

    def write(self, rank: int, **state: Any) -> None:
        temporary = self.file(rank).with_suffix(".tmp")
        try:
            temporary.write_text(json.dumps(state | {"time_s": time.time()}) + "\n")
            temporary.replace(self.file(rank))
        except OSError:  # a full disk is for those to find who have something to save; that this rank runs is told
            with contextlib.suppress(OSError):
                os.utime(self.file(rank))

    def here(self, states: Mapping[int, dict[str, Any]]) -> dict[int, int]:
        """Process ids of the ranks that live on this host, and are this run's."""
        return {rank: state["pid"] for rank, state in states.items() if self._is_here(state)}

    def _is_here(self, state: dict[str, Any]) -> bool:
        try:
            environment = Path(f"/proc/{state['pid']}/environ").read_bytes()
        except OSError:
            return False
        return state["host"] == socket.gethostname() and os.fsencode(f"RUN_DIR={self.run_dir}") in environment

    def wake(self, ranks: Mapping[int, int]) -> None:
        """Let ranks (to their process ids) that were stopped run on, and print their stacks.

        Their own threads print them, with the interpreter's lock: the signal's handler has no lock, and reading the
        frames of threads that run can end the process. So the signal is for a rank whose thread does not answer.
        """
        asked = set()
        for rank, pid in ranks.items():
            with contextlib.suppress(OSError):  # a full disk has no room for the request: then the signal
                self.request(rank).touch()
                asked.add(rank)
            send(pid, signal.SIGCONT)
        end_s = time.monotonic() + GRACE_S
        while any(self.request(rank).exists() for rank in asked) and time.monotonic() < end_s:
            time.sleep(0.1)
        for rank, pid in ranks.items():
            if rank not in asked or self.request(rank).exists():
                send(pid, DUMP)
                self.request(rank).unlink(missing_ok=True)


def hang_line(who: str, timeout_s: float, step: int, silent: Mapping[int, dict[str, Any]]) -> str:
    """What train.out says of a hang; evidence/causes.py knows it by its beginning. Args: who: notices, ` (rank N)`."""
    whose = "".join(f"; rank {rank} on {state['host']} does not run" for rank, state in silent.items())
    return f"error{who}: hang: nothing was done for {timeout_s} s (HANG_TIMEOUT_S) after step {step}{whose}"


def send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(OSError):  # it has ended
        os.kill(pid, number)
