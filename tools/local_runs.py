"""Without SLURM: one run after the other on this machine, with a progress bar."""

import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import FrameType, TracebackType
from typing import Self

from tools.runs import read_run
from tools.submissions import Submission

_RUN_FOLDER = re.compile(r"^run folder: (.+)$", re.MULTILINE)


class Interrupted(BaseException):
    """Ctrl-C or SIGTERM: the run that was going on has been ended, the remaining ones shall not start."""


class LocalRuns:
    """Runs submissions as `bash launcher arguments`; use as a context manager, for the progress bar's sake."""

    def __init__(self, total: int, logs: Path) -> None:
        from tqdm import tqdm  # the other commands start without it

        self._outputs = logs / ".local"
        # A bar in a log file: a line per run is enough.
        self._bar = tqdm(total=total, unit="run", mininterval=0.1 if sys.stderr.isatty() else 10)

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGTERM, _interrupt)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._bar.close()
        signal.signal(signal.SIGTERM, self._before)

    def run(self, submission: Submission, command: Sequence[str], environment: Mapping[str, str]) -> str:
        """The state in which the run ended. Its output goes to a file, as SLURM would do it.

        Raises:
            Interrupted: the user ended it; the launcher has recorded that.
        """
        self._outputs.mkdir(parents=True, exist_ok=True)
        name = f"{datetime.now():%Y%m%d-%H%M%S}-{submission.exercise.name}-line{submission.line}.out"
        output = self._outputs / name
        self._bar.set_description_str(submission.place)
        begin_s = time.monotonic()
        code = _wait(command, environment, output)
        state = _state(output, code)
        self._bar.write(f"{state:<10} {time.monotonic() - begin_s:7.0f} s  {submission.place}  {submission.short}")
        if state != "completed":
            lines = output.read_text(errors="replace").strip().splitlines()
            errors = [line for line in lines if line.startswith("error: ")]
            self._bar.write(f"{'':10} {(errors or lines or ['no output'])[-1][:200]}\n{'':10} see {output}")
        self._bar.update()
        return state


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _wait(command: Sequence[str], environment: Mapping[str, str], output: Path) -> int:
    with output.open("wb") as stream:
        launcher = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=stream, stderr=subprocess.STDOUT
        )
        try:
            return launcher.wait()
        except KeyboardInterrupt:  # the launcher ends its training and writes down that it was cancelled
            launcher.terminate()
            launcher.wait()
            raise Interrupted from None


def _state(output: Path, exit_code: int) -> str:
    """What run.json says; a launcher that stopped before it made a run folder has only its exit code."""
    if exit_code and (folder := _RUN_FOLDER.search(output.read_text(errors="replace"))):
        state = read_run(Path(folder[1])).state
        return state if state not in ("completed", "running", "unreadable") else "failed"
    return "failed" if exit_code else "completed"
