"""Show reference runs as if they ran now, in logs/replay: for the day on which the cluster is down. Never measured."""

import argparse
import itertools
import json
import signal
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tools.commands.options import INTERRUPTED, above_0
from tools.errors import InputError, LogError
from tools.logs.run import Run, duration
from tools.logs.runs import default_logs, find_runs
from tools.tables.repository import REFERENCE, ROOT, exercises
from workshop.run_folder.plural import counted
from workshop.run_folder.safe_open import read_plain

_END = ("state", "exit_code", "end_time", "cause", "reason", "attempts", "attempt_start_time")
_IN_LINES = ("steps.csv", "train.out", "gpu_memory", "cpu_memory", "cpu_pss")
_LOOK_EVERY_S, _ENDED = 0.2, "ended"
_AT_A_TIME = 4


def replay(run: Run, logs: Path, speed: float) -> Iterator[None]:
    """Write the run into a new folder as it grew; yields while nothing is due. Ended early, it is a cancelled run."""
    start = datetime.now(UTC).replace(microsecond=0)
    began_s = time.monotonic()
    folders = (logs / run.folder.parent.name / f"{start:%Y%m%d-%H%M%S}-replay{n}" for n in itertools.count(1))
    folder = next(folder for folder in folders if not folder.exists())
    folder.mkdir(parents=True)
    name = run.folder.resolve()
    of = str(name.relative_to(ROOT) if name.is_relative_to(ROOT) else name)
    record = {key: value for key, value in run.json.items() if key not in _END}
    record |= {"start_time": start.isoformat(), "replay": {"of": of, "speed": speed}}
    end = {"end_time": (start + timedelta(seconds=run.runtime_s)).isoformat()}

    def write(**more: object) -> None:
        temporary = folder / "run.tmp"  # a reader never sees half of run.json
        temporary.write_text(json.dumps(record | more, indent=2) + "\n", encoding="utf-8")
        temporary.replace(folder / "run.json")
        print(f"{more['state']:10} {folder}  replay of {run.folder}", flush=True)

    try:
        write(state="running")
        for at_s, file, data in _pieces(run):
            while (time.monotonic() - began_s) * speed < at_s:
                yield
            with (folder / file).open("ab") as stream:
                stream.write(data)
        write(**{key: run.json[key] for key in _END if key in run.json} | end)
    except BaseException:
        now = datetime.now(UTC).replace(microsecond=0).isoformat()
        write(state="cancelled", exit_code=143, end_time=now, reason="the replay was interrupted")
        raise


def _pieces(run: Run) -> list[tuple[float, str, bytes]]:
    """When each piece is due (s from the run's start), file, piece: lines evenly over the run, the rest at its end."""
    found = []
    for name in run.files:
        if name == "run.json" or name[0] == "." or not run.is_plain(name):
            continue  # checkpoints, too: nobody shall resume a replay
        try:
            data = read_plain(run.folder / name)
        except LogError as error:
            print(f"warning: left out: {error}", flush=True)
            continue
        lines = data.splitlines(keepends=True) if name.startswith(_IN_LINES) else []
        found += [(run.runtime_s * number / len(lines), name, line) for number, line in enumerate(lines)]
        found.append((run.runtime_s, name, b"" if lines else data))
    return sorted(found, key=lambda piece: piece[0])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", nargs="*", help="exercises (the runs of their tables) or folders of runs; default: all")
    parser.add_argument("--speed", type=above_0, default=1.0, metavar="N", help="N times as fast (default: 1)")
    parser.add_argument("--logs", type=Path, help="where the replays go (default: replay/ in the logs folder)")


def run(arguments: argparse.Namespace) -> int:
    logs = arguments.logs or default_logs() / "replay"
    if logs.resolve().is_relative_to(REFERENCE):
        raise InputError(f"--logs {logs}: are the reference runs; expected a folder of your own")
    waiting, active = _chosen(arguments.what), list[Iterator[None]]()
    fills = {f"  python -m tools fill {run.record.exercise} --logs {logs}": None for run in waiting}
    one_by_one = duration(sum(run.runtime_s for run in waiting) / arguments.speed)
    print(
        f"{counted(len(waiting), 'run')}, {one_by_one} h one after the other, {_AT_A_TIME} at a time; Ctrl-C ends them"
    )
    for ending in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, signal.default_int_handler)
    try:
        while waiting or active:
            while waiting and len(active) < _AT_A_TIME:
                active.append(replay(waiting.pop(0), logs, arguments.speed))
            active = [one for one in active if next(one, _ENDED) is None]
            time.sleep(_LOOK_EVERY_S)
    except KeyboardInterrupt:
        print("interrupted: the runs that had not ended are recorded as cancelled")
        return INTERRUPTED
    finally:
        for one in active:
            one.close()
    print("next, as after real runs (lists and tables say which are replays):")
    print("\n".join(fills))
    return 0


def _chosen(what: list[str]) -> list[Run]:
    """The runs asked for that have ended, each once, oldest first."""
    from tools.page.course_tables import course_tables  # fills tables: only where it is needed

    known = [folder.name for folder in exercises()]
    names = [name.rstrip("/") for name in what] or known
    folders = [Path(name) for name in names if name not in known]
    if unknown := [str(folder) for folder in folders if not folder.is_dir()]:
        raise InputError(f"{', '.join(unknown)}: neither a folder of runs nor an exercise: {', '.join(known)}")
    found = find_runs(*folders)
    if len(folders) < len(names):
        tables = course_tables([], find_runs(*sorted(REFERENCE.glob("*/"))))
        wanted = [one.references[0][1] for one in tables if one.references and one.exercise in names]
        found += [run for table in wanted for run in table.runs]
    ended = {run.folder.resolve(): run for run in found if run.state != "running" and run.runtime_s is not None}
    if not ended:
        raise InputError(f"{', '.join(what)}: no run there has ended; expected run folders with an end in run.json")
    return sorted(ended.values(), key=lambda run: run.start)
