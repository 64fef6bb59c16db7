"""Without SLURM: one run after the other on this machine."""

import os
import re
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

from tools.logs.runs import read_run
from tools.submit.submissions import Submission

_RUN_FOLDER = re.compile(r"^run folder: (.+)$", re.MULTILINE)
_LIBRARY_LINE = re.compile(r"^\[[\d:, -]+\] \[(?:INFO|WARNING)\].*\n?", re.MULTILINE)
_PROGRESS_S = 30

# A line, the command that starts its launcher, and the command's environment.
Task = tuple[Submission, Sequence[str], Mapping[str, str]]


def run_each(tasks: Sequence[Task], outputs: Path) -> tuple[list[str], bool]:
    """The state in which each task's run ended, and whether Ctrl-C, SIGTERM or SIGHUP ended what was going on.

    Args:
        outputs: a folder for what the launchers print, as SLURM's files.
    """
    outputs.mkdir(parents=True, exist_ok=True)
    states = ["not started"] * len(tasks)
    told: list[int] = []  # noted, not raised: the launcher must end its training
    endings = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    endings = [number for number in endings if signal.getsignal(number) != signal.SIG_IGN]  # nohup ignores SIGHUP
    before = {number: signal.signal(number, lambda got, _: told.append(got)) for number in endings}
    try:
        for number, (submission, command, environment) in enumerate(tasks, 1):
            if told:
                break
            print(f"[{number}/{len(tasks)}] {submission.place} ...", flush=True)
            name = f"{submission.exercise.name}-line{submission.source.number}"
            output = outputs / f"{datetime.now():%Y%m%d-%H%M%S}-{name}.out"
            begin_s = time.monotonic()
            with output.open("wb") as stream:
                options = {"stdin": subprocess.DEVNULL, "stdout": stream, "stderr": subprocess.STDOUT}
                # Not in the terminal's session: a second signal would end the training before it has saved.
                process = subprocess.Popen(command, env=environment, start_new_session=True, **options)
            handed_on, shown_s = 0, begin_s
            while process.poll() is None:
                if time.monotonic() > shown_s + _PROGRESS_S:  # DeepSpeed compiles for minutes at first
                    shown_s = time.monotonic()
                    print(f"{'':10} {shown_s - begin_s:7.0f} s  {_lines(output)[-1][:100]}", flush=True)
                for received in told[handed_on:]:
                    os.killpg(process.pid, received)
                    handed_on += 1
                time.sleep(0.1)
            states[number - 1] = _state(output, process.returncode, "cancelled" if told else "failed")
            print(_told(submission, states[number - 1], time.monotonic() - begin_s, output), flush=True)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return states, bool(told)


def _state(output: Path, exit_code: int, otherwise: str) -> str:
    """What run.json says; a launcher that stopped before it made a run folder has only its exit code."""
    if exit_code and (announced := _RUN_FOLDER.search(output.read_text(errors="replace"))):
        state = read_run(Path(announced[1])).state
        return state if state not in ("completed", "running", "unreadable") else otherwise
    return otherwise if exit_code else "completed"


def _told(submission: Submission, state: str, took_s: float, output: Path) -> str:
    text = f"{state:<10} {took_s:7.0f} s  {submission.place}  {submission.short}"
    if state != "completed":
        lines = _lines(output)
        errors = [line for line in lines if line.startswith("error: ")]
        text += f"\n{'':10} {(errors or lines)[-1][:200]}\n{'':10} see {output}"
    return text


def _lines(output: Path) -> list[str]:
    """What a launcher has printed, without DeepSpeed's information."""
    return _LIBRARY_LINE.sub("", output.read_text(errors="replace")).strip().splitlines() or ["no output"]
