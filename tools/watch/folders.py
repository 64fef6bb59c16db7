"""The runs of some logs folders that run, or ended not long ago."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from tools.logs.live_run import LiveRun, look
from tools.logs.run import Run
from tools.logs.runs import find_runs, read_run, run_folders


class Folders:
    """What `watch` shows of some logs folders."""

    def __init__(self, logs: Sequence[Path], owner: str | None, recent_s: float) -> None:
        """`owner`: whose runs, None for all; `recent_s`: how long ago a run may have ended."""
        self._logs, self._owner, self._recent_s = logs, owner, recent_s
        self._known: set[Path] = set()
        self._left_out: set[Path] = set()  # ended before, or somebody else's: not opened again

    def find(self) -> None:
        """Look for new run folders.

        Raises:
            InputError: a logs folder is not there.
        """
        for logs in self._logs:
            if not logs.is_dir():
                find_runs(logs)  # says so
            self._known |= set(run_folders(logs, 0))

    def look(self) -> list[LiveRun]:
        """All that are shown, read anew, by urgency."""
        found = []
        for folder in sorted(self._known - self._left_out):
            try:
                run = read_run(folder)
                if self._is_shown(run):
                    found.append(look(run))
                else:
                    self._left_out.add(folder)
            except OSError:  # deleted meanwhile
                continue
        return sorted(found, key=lambda one: one.urgency)

    def _is_shown(self, run: Run) -> bool:
        started_s, runtime_s = run.start.timestamp(), run.runtime_s
        newest_s = max((time_ns for _, time_ns in run.files.values()), default=0) / 1e9
        ended_s = newest_s if runtime_s is None else started_s + runtime_s
        recent = run.state == "running" or time.time() - ended_s < self._recent_s
        return recent and self._owner in (None, run.owner)
