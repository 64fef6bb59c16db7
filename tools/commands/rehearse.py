"""Rehearse a course: every exercise run tiny, then its fill, check and plot; one report."""

import argparse
import os
import re
import shlex
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from tools.commands.options import INTERRUPTED, above_0
from tools.errors import InputError
from tools.logs.run import Run
from tools.logs.runs import default_logs, find_runs
from tools.submit import slurm
from tools.submit.submissions import Submission, read
from tools.tables.markdown import read_tables
from tools.tables.repository import ROOT, borrowed_runs, exercise_folder
from workshop.run_folder.env_file import sourced
from workshop.run_folder.exercises import exercises_with
from workshop.run_folder.plural import counted

_POLL_S = 5


@dataclass(frozen=True)
class Exercise:
    """Attributes: list: tiny.txt; problems: what failed, each with what repeats it."""

    name: str
    list: Path
    lines: list[Submission]
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Rehearsal:
    """Attributes: logs: folder of its runs; environment: tiny.env's; local: without SLURM."""

    logs: Path
    environment: Mapping[str, str]
    local: bool

    def tool(self, exercise: Exercise, words: Sequence[str], file: str, expected: Sequence[int] = (0,)) -> Path:
        """Run `python -m tools WORDS`; gives the file with what it printed. Another exit code is a problem."""
        output = self.logs / ".output" / f"{exercise.name}-{file}"
        output.parent.mkdir(parents=True, exist_ok=True)
        options = {"cwd": self.logs, "env": {**self.environment, "PYTHONPATH": str(ROOT)}, "stdin": subprocess.DEVNULL}
        with output.open("w") as stream:
            options |= {"stdout": stream, "stderr": subprocess.STDOUT}
            process = subprocess.Popen([sys.executable, "-m", "tools", *words], **options)
            try:
                code = process.wait()
            finally:  # it has had the same Ctrl-C, and writes down how its runs ended
                process.wait()
        if code not in expected:
            said = output.read_text(errors="replace").strip().splitlines() or ["no output"]
            exercise.problems.append(f"{file}: exit code {code}: {said[-1]}\n  python -m tools {shlex.join(words)}")
        return output

    def submit(self, exercise: Exercise, options: Sequence[str] = ()) -> None:
        words = ["submit", "--list", str(exercise.list), "--logs", str(self.logs)]
        words += ["--local"] if self.local else ["--", *options] if options else []
        self.tool(exercise, words, "submit.txt", (0, 1))  # 1: a run failed, which the report says of the run

    def wait_for_queue(self, lines: Sequence[Submission], most_min: float) -> None:
        """Until SLURM's queue has none of the lines any more, a line per change; or the limit."""
        marks = {slurm.mark(line, self.logs) for line in lines}
        end_s, left = time.monotonic() + 60 * most_min, [-1]
        while left[-2:] != [0, 0] and time.monotonic() < end_s:  # a job queued again is in no list for a moment
            left.append(len(marks & slurm.queue().keys()))
            if left[-1] != left[-2]:
                print(f"{len(marks) - left[-1]} of {counted(len(marks), 'job')} ended", flush=True)
            time.sleep(_POLL_S)
        if left[-1]:
            print(f"after {most_min:g} minutes jobs are left: squeue --me; go on with --logs {self.logs}")

    def newest(self, exercise: Exercise) -> list[tuple[Submission, Run | None]]:
        """Each line with its newest run, None if none began."""
        runs = find_runs(self.logs)  # oldest first
        found = {(run.record.exercise, run.record.submission): run for run in runs}
        return [(line, found.get((line.exercise.name, line.text))) for line in exercise.lines]

    def finish(self, exercise: Exercise) -> str:
        """Resume what was told to end, which SLURM does by itself; then the tables and the plot. Gives a line."""
        for _, run in self.newest(exercise):
            if self.local and run and run.state == "preempted":
                words = ["submit", "--resume", str(run.folder), "--local"]
                self.tool(exercise, words, f"resumed-{run.folder.name}.txt")
        states = Counter(self._state(exercise, line, run) for line, run in self.newest(exercise))
        name, logs = exercise.name, ["--logs", str(self.logs)]
        self.tool(exercise, ["fill", name, "--tiny", *logs], "fill.txt")
        blank = self.tool(exercise, ["fill", name, "--tiny", "--blank"], "blank.md")
        filled = self.tool(exercise, ["fill", name, "--tiny", "--plain", *logs], "filled.md")
        self.tool(exercise, ["check", str(blank), *logs], "check.txt", (1,))  # nothing is filled in, and it says so
        self.tool(exercise, ["check", str(filled), *logs], "check-of-fill.txt")
        plot = ["plot", name, *logs, "--output", str(self.logs / f"{name}.png")]
        if borrowed_runs(name):  # its runs are drawn in another exercise
            plot += ["--tiny", "--table", read_tables(exercise_folder(name) / "README.md")[0].number]
        self.tool(exercise, plot, "plot.txt")
        return f"{name}: {', '.join(f'{count} {state}' for state, count in states.items())}"

    def _state(self, exercise: Exercise, line: Submission, run: Run | None) -> str:
        """How a line's run ended."""
        if self.local and line.count("nodes") > 1:
            return "skipped (needs SLURM for its nodes)"
        state = run.state if run else "not started"
        if state != "completed":
            why = f"{run.reason}; {run.folder}" if run else f"see {self.logs}/.output/{exercise.name}-submit.txt"
            words = ["submit", "--list", str(exercise.list), "--match", line.written, "--again"]
            again = shlex.join([*words, "--logs", str(self.logs), *["--local"] * self.local])
            command = f"source {ROOT}/tiny.env && python -m tools {again}"
            exercise.problems.append(f"{line.written}: {state}: {why}\n  {command}")
        return state


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = f"{parser.prog} [EXERCISE ...] [options] [-- SBATCH_OPTION ...]"
    parser.add_argument("exercises", nargs="*", metavar="EXERCISE", help="default: all of the course")
    parser.add_argument("--local", action="store_true", help="run here although there is SLURM")
    parser.add_argument("--logs", type=Path, help="go on with this rehearsal (default: a new one in logs/rehearsal)")
    parser.add_argument("--wait", type=above_0, default=20, metavar="MINUTES", help="for SLURM's jobs (default: 20)")


def run(arguments: argparse.Namespace) -> int:
    environment = tiny_environment(os.environ)
    exercises = chosen(arguments.exercises, environment)
    local = arguments.local or not slurm.available()
    if local and (options := " ".join(arguments.after_dashes)):
        raise InputError(f"-- {options}: sbatch options, but the runs are on this machine; expected none")
    logs = arguments.logs or default_logs() / "rehearsal" / f"{datetime.now():%Y%m%d-%H%M%S}"
    logs.mkdir(parents=True, exist_ok=True)
    rehearsal = Rehearsal(logs.resolve(), environment, local)
    lines, where = [line for one in exercises for line in one.lines], "on this machine" if local else "on SLURM"
    print(f"{counted(len(lines), 'run')} of {counted(len(exercises), 'exercise')}, {where}, in {logs}", flush=True)
    report, interrupted = [], False
    try:
        if not local:
            for exercise in exercises:
                rehearsal.submit(exercise, arguments.after_dashes)
            rehearsal.wait_for_queue(lines, arguments.wait)
        for exercise in exercises:
            if local:
                print(f"{exercise.name} ...", flush=True)
                rehearsal.submit(exercise)
            report.append(rehearsal.finish(exercise))
            print(report[-1], flush=True)
    except KeyboardInterrupt:
        interrupted = True
    problems = [f"{exercise.name}: {problem}" for exercise in exercises for problem in exercise.problems]
    report += [f"{len(problems)} failed; each with the command that repeats it:" if problems else "nothing failed"]
    text = "\n".join([*report, *problems])
    (logs / "report.txt").write_text(text)
    print(f"\n{text}\nthe same: {logs / 'report.txt'}")
    return INTERRUPTED if interrupted else int(bool(problems))


def tiny_environment(shell: Mapping[str, str]) -> dict[str, str]:
    """The shell's variables after `source tiny.env`, without where runs go; a thread per process unless it says so."""
    tiny = sourced(ROOT / "tiny.env", {"OMP_NUM_THREADS": shell.get("OMP_NUM_THREADS", "1")})
    own = {name: value for name, value in shell.items() if name not in ("LOG_DIR", "RUN_DIR", "SUBMISSION")}
    return own | {name: tiny[name] for name in re.findall(r"\b([A-Z_0-9]+)=", (ROOT / "tiny.env").read_text())}


def chosen(names: Sequence[str], environment: Mapping[str, str]) -> list[Exercise]:
    """The named exercises, or all, in the course's order; raises InputError if a name has no tiny.txt."""
    every = {folder.name: folder / "tiny.txt" for folder in exercises_with("tiny.txt")}
    course = re.findall(r"([\w-]+)/README\.md\)", (ROOT / "README.md").read_text())
    order = [name for name in dict.fromkeys([*course, *every]) if name in every]
    wanted = [Path(name).name for name in names] or order
    if unknown := [name for name in wanted if name not in every]:
        raise InputError(f"{', '.join(unknown)}: found no tiny.txt; expected some of {', '.join(order)}")
    return [Exercise(name, every[name], read(every[name], environment)) for name in order if name in wanted]
