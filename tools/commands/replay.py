"""Show reference runs as if they ran now: for the day on which the cluster is down. Marked, and never a measurement."""

import argparse
import signal
from collections.abc import Sequence
from pathlib import Path

from evidence.counted import counted
from tools.commands.number_options import above_0
from tools.errors import InputError
from tools.logs.run import Run, duration
from tools.logs.runs import default_logs, find_runs
from tools.tables.repository import ROOT

REFERENCE = ROOT / "logs" / "reference"
INTERRUPTED = 130
_ENDED = ("completed", "oom", "timeout", "preempted", "cancelled", "failed")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "what", nargs="*", help="exercises, whose reference tables' runs are meant, or folders of runs (default: all)"
    )
    parser.add_argument("--speed", type=above_0, default=1.0, metavar="N", help="N times as fast (default: 1)")
    parser.add_argument("--jobs", type=int, default=4, metavar="N", help="so many at a time (default: 4)")
    parser.add_argument("--logs", type=Path, help="where the replays go (default: $LOG_DIR, else logs/)")


def run(arguments: argparse.Namespace) -> int:
    from tools.replay.writing import Replay, replay_all

    logs = arguments.logs or default_logs()
    if REFERENCE in (logs.resolve(), *logs.resolve().parents):
        raise InputError(f"--logs {logs}: are the reference runs; expected a folder of your own")
    if arguments.jobs < 1:
        raise InputError(f"--jobs {arguments.jobs}: expected at least 1")
    runs = _chosen(arguments.what)
    total_s = sum(run.runtime_s for run in runs) / arguments.speed
    one_by_one = f"{counted(len(runs), 'run')}, {duration(total_s)} h one after the other"
    print(f"{one_by_one}, {arguments.jobs} at a time; Ctrl-C ends them")

    def told(run: Run, replay: Replay) -> None:
        print(f"{replay.state:9}  {replay.folder}  replay of {run.folder}", flush=True)

    for ending in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, signal.default_int_handler)
    try:
        replay_all(runs, logs, arguments.speed, arguments.jobs, told)
    except KeyboardInterrupt:
        print("interrupted: the runs that had not ended are recorded as cancelled")
        return INTERRUPTED
    print("next, as after real runs (tables and lists say which figures are a replay's):")
    for exercise in dict.fromkeys(run.record["exercise"] for run in runs):
        print(f"  python -m tools fill {exercise} --logs {logs}")
    return 0


def _chosen(what: Sequence[str]) -> list[Run]:
    """The runs asked for that have ended, each once.

    Raises:
        InputError: a name is neither an exercise with reference tables nor a folder with runs that have ended, or a
            run's summary.json is damaged.
    """
    from tools.page.course_tables import course_tables  # fills tables: only where it is needed

    machines = sorted(path for path in REFERENCE.glob("*") if path.is_dir())
    folders = [Path(name) for name in what if _is_folder_of_runs(name)]
    exercises = [name.rstrip("/") for name in what if not _is_folder_of_runs(name)]
    found = [run for folder in folders for run in find_runs(folder)]
    if exercises or not what:
        tables = course_tables([], find_runs(*machines))
        known = dict.fromkeys(table.exercise for table in tables if table.references)
        if unknown := [name for name in exercises if name not in known]:
            raise InputError(
                f"{', '.join(unknown)}: neither a folder of runs nor an exercise with reference tables, which are: "
                f"{', '.join(known)}"
            )
        wanted = exercises or list(known)
        filled = [filled for table in tables if table.exercise in wanted for _, filled in table.references[:1]]
        found += [run for table in filled for run in table.runs]
    ended = {run.folder.resolve(): run for run in found if run.state in _ENDED and run.runtime_s is not None}
    if not ended:
        raise InputError(f"{', '.join(what)}: no run there has ended; expected run folders with an end in run.json")
    for run in ended.values():
        _ = run.summary  # a damaged one is an error now, and not when its turn comes
    return sorted(ended.values(), key=lambda run: run.start)


def _is_folder_of_runs(name: str) -> bool:
    return Path(name).is_dir() and not (Path(name) / "submit.txt").exists()
