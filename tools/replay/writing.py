"""Replays: run folders that grow as those of runs do, at a pace of choice."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tools.logs.run import Run
from tools.replay.timeline import Piece, pieces
from tools.tables.repository import ROOT

LOOK_EVERY_S = 0.2
_END = ("state", "exit_code", "end_time", "cause", "reason", "attempts", "attempt_start_time")


class Replay:
    """One run folder, from its start to its end. Attributes: folder; state: in its run.json."""

    def __init__(self, run: Run, logs: Path, speed: float) -> None:
        """Make the folder, with a run.json that says what is replayed.

        Raises:
            LogError: summary.json of the run is damaged.
            OSError: a log of the run cannot be read, or the folder cannot be made.
        """
        now = datetime.now(UTC).replace(microsecond=0)
        self._speed, self._length_s = speed, run.runtime_s or 0.0
        self._left: deque[Piece] = deque(pieces(run, self._length_s, now - run.start))
        self._record: dict[str, Any] = {key: value for key, value in run.record.items() if key not in _END}
        self._record |= {"start_time": now.isoformat(), "replay": {"of": _name(run.folder), "speed": speed}}
        end = now + timedelta(seconds=self._length_s)
        self._end = {key: run.record[key] for key in _END if key in run.record} | {"end_time": end.isoformat()}
        self.folder = _new_folder(logs / run.folder.parent.name, now)
        self.state = ""
        self._write_record(state="running")
        self._started_s = time.monotonic()

    def advance(self) -> None:
        """Write what is due by now; the end of the run with the last of it."""
        self.write_until((time.monotonic() - self._started_s) * self._speed)

    def write_until(self, at_s: float) -> None:
        """Write what the run had written that many seconds after its start."""
        while self._left and self._left[0].at_s <= at_s:
            piece = self._left.popleft()
            with (self.folder / piece.file).open("ab") as file:
                file.write(piece.data)
        if not self._left and at_s >= self._length_s:
            self._write_record(**self._end)

    def cancel(self) -> None:
        """The run ends here, as one that somebody cancels."""
        now = datetime.now(UTC).replace(microsecond=0).isoformat()
        self._write_record(state="cancelled", exit_code=143, end_time=now, reason="the replay was interrupted")

    def _write_record(self, **more: Any) -> None:
        """As a whole, so that a reader never sees half of it."""
        temporary = self.folder / "run.tmp"
        temporary.write_text(json.dumps(self._record | more, indent=2) + "\n", encoding="utf-8")
        temporary.replace(self.folder / "run.json")
        self.state = more["state"]


def _name(folder: Path) -> str:
    """Without the folders of this machine where it is in the repository."""
    place = folder.resolve()
    return str(place.relative_to(ROOT) if place.is_relative_to(ROOT) else place)


def _new_folder(parent: Path, start: datetime) -> Path:
    """Named after its start, as every run folder is, and after what it is."""
    number = 1
    while True:
        folder = parent / f"{start:%Y%m%d-%H%M%S}-replay{number}"
        try:
            folder.mkdir(parents=True)
            return folder
        except FileExistsError:
            number += 1


def replay_all(
    runs: Sequence[Run], logs: Path, speed: float, at_once: int, told: Callable[[Run, Replay], None]
) -> None:
    """Replay the runs, `at_once` of them side by side; whatever ends this before its time leaves no run half-running.

    Args:
        told: is called for each when it has begun and when it has ended.
    """
    waiting, active = deque(runs), dict[Replay, Run]()
    try:
        while waiting or active:
            while waiting and len(active) < at_once:
                run = waiting.popleft()
                begun = Replay(run, logs, speed)
                active[begun] = run
                told(run, begun)
            for one in list(active):
                one.advance()
                if one.state != "running":
                    told(active.pop(one), one)
            time.sleep(LOOK_EVERY_S)
    finally:
        for one in active:
            one.cancel()
