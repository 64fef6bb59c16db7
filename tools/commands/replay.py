"""Show reference runs as if they ran now, in logs/replay: for the day on which the cluster is down. Never measured."""

import argparse
import itertools
import json
import signal
import stat
import time
from collections import deque
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from run_folder.plural import counted
from run_folder.safe_open import read_plain
from tools.commands.options import above_0
from tools.errors import InputError
from tools.logs.run import Run, duration
from tools.logs.runs import default_logs, find_runs
from tools.tables.repository import ROOT, exercises

REFERENCE = ROOT / "logs" / "reference"
INTERRUPTED = 130
_END = ("state", "exit_code", "end_time", "cause", "reason", "attempts", "attempt_start_time")
_IN_LINES = ("steps.csv", "train.out", "gpu_memory", "cpu_memory", "cpu_pss")
_AT_THE_START = ("nccl.log", "hostfile", "code.diff")
_LOOK_EVERY_S = 0.2


class Replay:
    """A run folder that grows as the run's did. Attributes: run; folder; state: in its run.json."""

    def __init__(self, run: Run, logs: Path, speed: float) -> None:
        now = datetime.now(UTC).replace(microsecond=0)
        self.run, self._speed, self._length_s = run, speed, run.runtime_s or 0.0
        self._left = deque(sorted(_pieces(run, self._length_s), key=lambda piece: piece[0]))
        name = run.folder.resolve()
        of = str(name.relative_to(ROOT) if name.is_relative_to(ROOT) else name)
        own = {"start_time": now.isoformat(), "replay": {"of": of, "speed": speed}}
        self._record = {key: value for key, value in run.record.items() if key not in _END} | own
        end = now + timedelta(seconds=self._length_s)
        self._end = {key: run.record[key] for key in _END if key in run.record} | {"end_time": end.isoformat()}
        folders = (logs / run.folder.parent.name / f"{now:%Y%m%d-%H%M%S}-replay{n}" for n in itertools.count(1))
        self.folder = next(folder for folder in folders if not folder.exists())
        self.folder.mkdir(parents=True)
        self._write_record(state="running")
        self._started_s = time.monotonic()

    def advance(self) -> None:
        """Write what is due by now; the end of the run with the last of it."""
        at_s = (time.monotonic() - self._started_s) * self._speed
        while self._left and self._left[0][0] <= at_s:
            _, file, data = self._left.popleft()
            with (self.folder / file).open("ab") as stream:
                stream.write(data)
        if at_s >= self._length_s:
            self._write_record(**self._end)

    def cancel(self) -> None:
        """The run ends here, as one that somebody cancels."""
        now = datetime.now(UTC).replace(microsecond=0).isoformat()
        self._write_record(state="cancelled", exit_code=143, end_time=now, reason="the replay was interrupted")

    def _write_record(self, **more: object) -> None:
        temporary = self.folder / "run.tmp"  # a reader never sees half of run.json
        temporary.write_text(json.dumps(self._record | more, indent=2) + "\n", encoding="utf-8")
        temporary.replace(self.folder / "run.json")
        self.state = str(more["state"])


def _pieces(run: Run, length_s: float) -> list[tuple[float, str, bytes]]:
    """All files but run.json and hidden ones: when each piece is written (s from the run's start), file, piece.

    The lines of logs come evenly over the whole run, other files at its start or its end.
    """
    found = []
    for name in run.files:
        if name == "run.json" or name[0] == "." or not stat.S_ISREG((run.folder / name).lstat().st_mode):
            continue  # checkpoints, too: nobody shall resume a replay
        data = read_plain(run.folder / name)
        if name.startswith(_IN_LINES):
            lines = data.splitlines(keepends=True)
            found += [(length_s * number / len(lines), name, line) for number, line in enumerate(lines)]
        else:
            found.append((0.0 if name in _AT_THE_START else length_s, name, data))
    return found


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "what", nargs="*", help="exercises, whose reference tables' runs are meant, or folders of runs (default: all)"
    )
    parser.add_argument("--speed", type=above_0, default=1.0, metavar="N", help="N times as fast (default: 1)")
    parser.add_argument("--jobs", type=int, default=4, metavar="N", help="so many at a time (default: 4)")
    parser.add_argument("--logs", type=Path, help="where the replays go (default: replay/ in the logs folder)")


def run(arguments: argparse.Namespace) -> int:
    logs = arguments.logs or default_logs() / "replay"
    if REFERENCE in (logs.resolve(), *logs.resolve().parents):
        raise InputError(f"--logs {logs}: are the reference runs; expected a folder of your own")
    if arguments.jobs < 1:
        raise InputError(f"--jobs {arguments.jobs}: expected at least 1")
    runs = _chosen(arguments.what)
    total_s = sum(run.runtime_s for run in runs) / arguments.speed
    one_by_one = f"{counted(len(runs), 'run')}, {duration(total_s)} h one after the other"
    print(f"{one_by_one}, {arguments.jobs} at a time; Ctrl-C ends them", flush=True)
    for ending in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, signal.default_int_handler)
    waiting, active = deque(runs), list[Replay]()
    try:
        while waiting or active:
            while waiting and len(active) < arguments.jobs:
                active.append(Replay(waiting.popleft(), logs, arguments.speed))
                print(_told(active[-1]), flush=True)
            for one in active:
                one.advance()
                if one.state != "running":
                    print(_told(one), flush=True)
            active = [one for one in active if one.state == "running"]
            time.sleep(_LOOK_EVERY_S)
    except KeyboardInterrupt:
        print("interrupted: the runs that had not ended are recorded as cancelled")
        return INTERRUPTED
    finally:
        for one in active:
            one.cancel()
    print("next, as after real runs (lists and tables say which are replays):")
    for exercise in dict.fromkeys(run.record["exercise"] for run in runs):
        print(f"  python -m tools fill {exercise} --logs {logs}")
    return 0


def _told(replay: Replay) -> str:
    return f"{replay.state:10} {replay.folder}  replay of {replay.run.folder}"


def _chosen(what: Sequence[str]) -> list[Run]:
    """The runs asked for that have ended, each once, oldest first.

    Raises:
        InputError: a name is neither an exercise nor a folder with runs that have ended.
    """
    from tools.page.course_tables import course_tables  # fills tables: only where it is needed

    known = [folder.name for folder in exercises()]
    names = [name.rstrip("/") for name in what] or known
    folders = [Path(name) for name in names if name not in known]
    if unknown := [str(folder) for folder in folders if not folder.is_dir()]:
        raise InputError(f"{', '.join(unknown)}: neither a folder of runs nor an exercise: {', '.join(known)}")
    found = find_runs(*folders)
    if len(folders) < len(names):
        machines = sorted(path for path in REFERENCE.glob("*") if path.is_dir())
        tables = [one for one in course_tables([], find_runs(*machines)) if one.references and one.exercise in names]
        found += [run for table in tables for run in table.references[0][1].runs]
    ended = {run.folder.resolve(): run for run in found if run.state != "running" and run.runtime_s is not None}
    if not ended:
        raise InputError(f"{', '.join(what)}: no run there has ended; expected run folders with an end in run.json")
    return sorted(ended.values(), key=lambda run: run.start)
