"""The commands of a rehearsal, each as a participant types it, with what it printed in a file."""

import shlex
import subprocess
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from evidence.counted import counted
from tools.logs.runs import read_run
from tools.submit import slurm
from tools.submit.submissions import Submission
from tools.tables.markdown import read_tables
from tools.tables.repository import ROOT, borrowed_runs

_POLL_S = 5


@dataclass(frozen=True)
class Step:
    """Attributes: command: as one types it; problem: "" if it went well; output: the file with what it printed."""

    name: str
    command: str
    took_s: float
    problem: str
    output: Path

    @property
    def tool(self) -> str:
        """Which of the tools it is, such as fill."""
        return shlex.split(self.command)[3]


@dataclass(frozen=True)
class Steps:
    """Runs commands. Attributes: logs: folder of the rehearsal's runs; environment: tiny.env's."""

    logs: Path
    environment: Mapping[str, str]

    def tool(
        self, name: str, words: Sequence[str], expected: Collection[int] = (0,), file: str = "", live: bool = False
    ) -> Step:
        """`python -m tools WORDS` in the folder of the logs.

        Args:
            expected: exit codes of one that went well.
            file: of the output, in the folder .output of the logs; default: the name.
            live: its progress bar is shown, too.
        """
        output = self.logs / ".output" / (file or f"{name.replace(' ', '-')}.txt")
        output.parent.mkdir(parents=True, exist_ok=True)
        begin_s = time.monotonic()
        with output.open("w") as stream:
            process = subprocess.Popen(
                [sys.executable, "-m", "tools", *words],
                cwd=self.logs,
                env={**self.environment, "PYTHONPATH": str(ROOT)},
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=None if live else subprocess.STDOUT,
            )
            try:
                code = process.wait()
            except KeyboardInterrupt:  # it has had the same Ctrl-C, and writes down how its runs ended
                process.wait()
                raise
        lines = output.read_text(errors="replace").strip().splitlines() or ["no output"]
        problem = "" if code in expected else f"exit code {code}: {lines[-1]}"
        command = shlex.join(["python", "-m", "tools", *words])
        return Step(name, command, time.monotonic() - begin_s, problem, output)

    def tables_and_plot(self, chapter: str) -> list[Step]:
        """`fill`, `check` of the blank tables and of what `fill` printed, `plot`."""
        logs = ["--logs", str(self.logs)]
        blank = self.tool("blank", ["fill", chapter, "--tiny", "--blank"], file=f"{chapter}-blank.md")
        plain = self.tool("filled", ["fill", chapter, "--tiny", "--plain", *logs], file=f"{chapter}-filled.md")
        fill = self.tool("fill", ["fill", chapter, "--tiny", *logs], file=f"{chapter}-fill.txt")
        # 1: nothing is filled in, and it says so.
        check = self.tool("check", ["check", str(blank.output), *logs], (1,), f"{chapter}-check.txt")
        again = self.tool("check of fill", ["check", str(plain.output), *logs], file=f"{chapter}-check-of-fill.txt")
        what = [chapter, *logs, "--output", str(self.logs / f"{chapter}.png")]
        if borrowed_runs(chapter):  # its runs are drawn in another chapter
            what += ["--tiny", "--table", read_tables(ROOT / chapter / "README.md")[0].number]
        return [fill, blank, plain, check, again, self.tool("plot", ["plot", *what], file=f"{chapter}-plot.txt")]


def wait_for_queue(lines: Sequence[Submission], logs: Path, limit_min: float) -> bool:
    """Until SLURM's queue has none of the lines any more, a line per change; whether that came within the limit."""
    marks = {slurm.mark(line, logs) for line in lines}
    end_s, before, empty = time.monotonic() + 60 * limit_min, None, 0
    while time.monotonic() < end_s:
        queue = slurm.queue()
        left = [queue[mark] for mark in marks if mark in queue]
        now = f"{len(marks) - len(left)} of {counted(len(marks), 'job')} ended, {left.count('running')} running"
        if now != before:
            print(now, flush=True)
            before = now
        empty = 0 if left else empty + 1
        if empty == 2:  # a job that SLURM queues again is in no list for a moment
            return True
        time.sleep(_POLL_S)
    return False


def wait_for_end(run: Path, limit_min: float) -> None:
    """Until a run that was queued to go on has ended, or the limit."""
    end_s = time.monotonic() + 60 * limit_min
    while read_run(run).state in ("preempted", "running") and time.monotonic() < end_s:
        time.sleep(_POLL_S)
