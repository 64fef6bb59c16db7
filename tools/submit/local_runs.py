"""Without SLURM: one run after the other on this machine, or several side by side, with a progress bar."""

import re
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import FrameType, TracebackType
from typing import Self

from tools.logs.runs import read_run
from tools.submit.lanes import Lane
from tools.submit.submissions import Submission

_RUN_FOLDER = re.compile(r"^run folder: (.+)$", re.MULTILINE)
_POLL_S = 0.1


@dataclass(frozen=True)
class Task:
    """Attributes: command: what starts the submission's launcher, in `environment`."""

    submission: Submission
    command: Sequence[str]
    environment: Mapping[str, str]


@dataclass(frozen=True)
class _Active:
    number: int
    task: Task
    lane: Lane | None
    process: subprocess.Popen[bytes]
    output: Path
    begin_s: float


class LocalRuns:
    """Runs submissions as `bash launcher arguments`; use as a context manager, for the progress bar's sake.

    Attributes: interrupted: by Ctrl-C or SIGTERM; what was going on has been ended, the remaining ones did not start.
    """

    def __init__(self, tasks: Sequence[Task], logs: Path, side_by_side: Sequence[Lane]) -> None:
        """Args: side_by_side: a lane for each run at a time; none: one run after the other on the whole machine."""
        from tqdm import tqdm  # the other commands start without it

        self.interrupted = False
        self._tasks = tasks
        self._free: list[Lane | None] = list(side_by_side) or [None]
        self._outputs = logs / ".local"
        # A bar in a log file: a line per run is enough.
        self._bar = tqdm(total=len(tasks), unit="run", mininterval=0.1 if sys.stderr.isatty() else 10)

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGTERM, _interrupt)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._bar.close()
        signal.signal(signal.SIGTERM, self._before)

    def run(self) -> Iterator[tuple[int, str]]:
        """The number of each task and the state its run ended in, as they end. Outputs go to files, as SLURM's."""
        self._outputs.mkdir(parents=True, exist_ok=True)
        waiting, active = deque(enumerate(self._tasks)), list[_Active]()
        try:
            while waiting or active:
                while waiting and self._free:
                    active.append(self._start(*waiting.popleft(), self._free.pop(0)))
                for ended in [one for one in active if one.process.poll() is not None]:
                    active.remove(ended)
                    self._free.append(ended.lane)
                    yield ended.number, self._shown(ended, _state(ended.output, ended.process.returncode))
                time.sleep(_POLL_S)
        except KeyboardInterrupt:  # the launchers end their training and write down that it was cancelled
            self.interrupted = True
            for one in active:
                one.process.terminate()
            for one in active:
                one.process.wait()
                yield one.number, "cancelled"

    def _start(self, number: int, task: Task, lane: Lane | None) -> _Active:
        name = f"{datetime.now():%Y%m%d-%H%M%S}-{task.submission.exercise.name}-line{task.submission.line}.out"
        output = self._outputs / name
        self._bar.set_description_str(task.submission.place)
        environment = {**task.environment, **(lane.environment if lane else {})}
        with output.open("wb") as stream:
            process = subprocess.Popen(
                task.command, env=environment, stdin=subprocess.DEVNULL, stdout=stream, stderr=subprocess.STDOUT
            )
        if lane:
            lane.bind(process)
        return _Active(number, task, lane, process, output, time.monotonic())

    def _shown(self, ended: _Active, state: str) -> str:
        submission, took_s = ended.task.submission, time.monotonic() - ended.begin_s
        self._bar.write(f"{state:<10} {took_s:7.0f} s  {submission.place}  {submission.short}")
        if state != "completed":
            lines = ended.output.read_text(errors="replace").strip().splitlines()
            errors = [line for line in lines if line.startswith("error: ")]
            self._bar.write(f"{'':10} {(errors or lines or ['no output'])[-1][:200]}\n{'':10} see {ended.output}")
        self._bar.update()
        return state


def announced_folder(output: Path) -> Path | None:
    """The run folder that a launcher printed; None if it stopped before it made one."""
    found = _RUN_FOLDER.search(output.read_text(errors="replace"))
    return Path(found[1]) if found else None


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _state(output: Path, exit_code: int) -> str:
    """What run.json says; a launcher that stopped before it made a run folder has only its exit code."""
    if exit_code and (folder := announced_folder(output)):
        state = read_run(folder).state
        return state if state not in ("completed", "running", "unreadable") else "failed"
    return "failed" if exit_code else "completed"
