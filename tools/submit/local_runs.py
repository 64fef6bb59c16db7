"""Without SLURM: one run after the other on this machine, or several side by side, with a progress bar."""

import os
import re
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from tools.errors import InputError
from tools.logs.runs import read_run
from tools.submit.submissions import Submission
from workshop.run_folder.plural import counted

_RUN_FOLDER = re.compile(r"^run folder: (.+)$", re.MULTILINE)
_POLL_S = 0.1


class Lane(NamedTuple):
    """A part of the machine that one run has to itself: GPUs as CUDA_VISIBLE_DEVICES names them, and processors."""

    gpus: list[str]
    processors: list[int]


# A line, the command that starts its launcher, and the command's environment.
Task = tuple[Submission, Sequence[str], Mapping[str, str]]


@dataclass(frozen=True)
class _Active:
    number: int
    submission: Submission
    lane: Lane | None
    process: subprocess.Popen[bytes]
    output: Path
    begin_s: float


def lanes(number: int) -> list[Lane]:
    """This machine in `number` equal lanes; what does not divide stays unused.

    Raises:
        InputError: fewer processors, or GPUs where there are any, than lanes.
    """
    can_bind = hasattr(os, "sched_getaffinity")  # macOS cannot
    processors = sorted(os.sched_getaffinity(0)) if can_bind else list(range(os.cpu_count() or 1))
    gpus = _gpus()
    for what, there in (("processor", len(processors)), ("GPU", len(gpus) or number)):
        if not 1 <= number <= there:
            raise InputError(f"--jobs {number}: this machine has {counted(there, what)}; expected from 1 to {there}")
    cores, cards = len(processors) // number, len(gpus) // number
    return [
        Lane(gpus[lane * cards : (lane + 1) * cards], processors[lane * cores : (lane + 1) * cores])
        for lane in range(number)
    ]


def _gpus() -> list[str]:
    """CUDA's names of the GPUs that may be used."""
    if "CUDA_VISIBLE_DEVICES" in os.environ:
        return [name.strip() for name in os.environ["CUDA_VISIBLE_DEVICES"].split(",") if name.strip()]
    try:
        found = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout
    except FileNotFoundError:
        return []
    return [str(index) for index in range(sum(line.startswith("GPU") for line in found.splitlines()))]


def run(tasks: Sequence[Task], outputs: Path, side_by_side: Sequence[Lane]) -> tuple[list[str], bool]:
    """The state in which each task's run ended, and whether Ctrl-C or SIGTERM ended what was going on.

    Args:
        outputs: a folder for what the launchers print, as SLURM's files.
        side_by_side: a lane for each run at a time; none: one run after the other on the whole machine.
    """
    from tqdm import tqdm  # the other commands start without it

    outputs.mkdir(parents=True, exist_ok=True)
    states, free = ["not started"] * len(tasks), list(side_by_side) or [None]
    waiting, active = deque(enumerate(tasks)), list[_Active]()
    # Noted, not raised: between the start of a launcher and its place in `active` nobody could end it.
    told: list[int] = []
    before = {
        number: signal.signal(number, lambda got, _: told.append(got)) for number in (signal.SIGINT, signal.SIGTERM)
    }
    # A bar in a log file: a line per run is enough.
    bar = tqdm(total=len(tasks), unit="run", mininterval=0.1 if sys.stderr.isatty() else 10)
    try:
        while (waiting or active) and not told:
            while waiting and free and not told:
                active.append(_start(*waiting.popleft(), free.pop(0), outputs))
                bar.set_description_str(active[-1].submission.place)
            for ended in [one for one in active if one.process.poll() is not None]:
                active.remove(ended)
                free.append(ended.lane)
                states[ended.number] = _state(ended.output, ended.process.returncode)
                bar.write(_told(ended, states[ended.number]))
                bar.update()
            time.sleep(_POLL_S)
    finally:
        bar.close()
        for number, handler in before.items():
            signal.signal(number, handler)
    for one in active:  # the launchers end their training and write down that it was cancelled
        one.process.terminate()
    for one in active:
        one.process.wait()
        states[one.number] = "cancelled"
    return states, bool(told)


def _start(number: int, task: Task, lane: Lane | None, outputs: Path) -> _Active:
    submission, command, environment = task
    output = outputs / f"{datetime.now():%Y%m%d-%H%M%S}-{submission.exercise.name}-line{submission.line}.out"
    gpus = {"CUDA_VISIBLE_DEVICES": ",".join(lane.gpus)} if lane and lane.gpus else {}
    options = {"env": {**environment, **gpus}, "stdin": subprocess.DEVNULL, "stderr": subprocess.STDOUT}
    with output.open("wb") as stream:
        process = subprocess.Popen(command, stdout=stream, **options)
    if lane and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(process.pid, lane.processors)
    return _Active(number, submission, lane, process, output, time.monotonic())


def _state(output: Path, exit_code: int) -> str:
    """What run.json says; a launcher that stopped before it made a run folder has only its exit code."""
    if exit_code and (announced := _RUN_FOLDER.search(output.read_text(errors="replace"))):
        state = read_run(Path(announced[1])).state
        return state if state not in ("completed", "running", "unreadable") else "failed"
    return "failed" if exit_code else "completed"


def _told(ended: _Active, state: str) -> str:
    submission, took_s = ended.submission, time.monotonic() - ended.begin_s
    text = f"{state:<10} {took_s:7.0f} s  {submission.place}  {submission.short}"
    if state != "completed":
        lines = ended.output.read_text(errors="replace").strip().splitlines()
        errors = [line for line in lines if line.startswith("error: ")]
        text += f"\n{'':10} {(errors or lines or ['no output'])[-1][:200]}\n{'':10} see {ended.output}"
    return text
