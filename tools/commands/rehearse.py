"""Rehearse a course: every exercise run tiny, then its fill, check and plot; one report."""

import argparse
import os
import shlex
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from evidence.counted import counted
from tools.commands.number_options import above_0
from tools.commands.runs import text_table
from tools.commands.submit import INTERRUPTED
from tools.doctor import site
from tools.errors import InputError
from tools.logs.run import Run
from tools.logs.runs import default_logs, find_runs
from tools.rehearsal.chapters import Chapter, Outcome, chapters, outcomes, tiny_environment
from tools.rehearsal.steps import Step, Steps, wait_for_end, wait_for_queue
from tools.submit import slurm
from tools.tables.repository import ROOT

_COLUMNS = ("submit", "fill", "check", "plot")
_RESUMED_MIN = 5


@dataclass(frozen=True)
class Rehearsed:
    """A chapter as it went.

    Attributes: outcomes: of its runs; steps: its commands; local: its runs are among these, and not jobs of their own.
    """

    chapter: Chapter
    outcomes: list[Outcome]
    steps: list[Step]
    local: bool

    @property
    def took_s(self) -> float:
        jobs = [] if self.local else [outcome.run for outcome in self.outcomes if outcome.run]
        return sum(step.took_s for step in self.steps) + sum(run.runtime_s or 0 for run in jobs)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = f"{parser.prog} [EXERCISE ...] [options] [-- SBATCH_OPTION ...]"
    parser.add_argument("exercises", nargs="*", metavar="EXERCISE", help="default: all of the course")
    parser.add_argument("--local", action="store_true", help="run here although there is SLURM")
    parser.add_argument("--logs", type=Path, help="go on with this rehearsal (default: a new one in logs/rehearsal)")
    parser.add_argument("--wait", type=above_0, default=20, metavar="MINUTES", help="for SLURM's jobs (default: 20)")


def run(arguments: argparse.Namespace) -> int:
    environment = tiny_environment(os.environ)
    found = chapters(arguments.exercises, environment)
    local = arguments.local or not _slurm_works()
    if local and arguments.after_dashes:
        options = " ".join(arguments.after_dashes)
        raise InputError(f"-- {options}: sbatch options, but the runs are on this machine; expected none")
    logs = arguments.logs or default_logs() / "rehearsal" / f"{datetime.now():%Y%m%d-%H%M%S}"
    logs.mkdir(parents=True, exist_ok=True)
    steps = Steps(logs.resolve(), environment)
    lines = sum(len(chapter.lines) for chapter in found)
    runs, where = counted(lines, "run"), "on this machine" if local else "on SLURM"
    print(f"{runs} of {counted(len(found), 'exercise')}, {where}, in {logs}", flush=True)
    begin_s, done, interrupted = time.monotonic(), list[Rehearsed](), False
    try:
        queued = {} if local else _queued(found, steps, arguments)
        for number, chapter in enumerate(found, 1):
            print(f"[{number}/{len(found)}] {chapter.name}", flush=True)
            started = [_started_here(chapter, steps)] if local else queued[chapter.name]
            done.append(_finished(chapter, steps, started, local))
            print(f"[{number}/{len(found)}] {' '.join(_row(done[-1]))} s", flush=True)
    except KeyboardInterrupt:
        interrupted = True
    text, failed = _report(done, steps, time.monotonic() - begin_s)
    (logs / "report.txt").write_text(text)
    print(f"\n{text}\nthe same: {logs / 'report.txt'}")
    if interrupted:
        return INTERRUPTED
    return int(failed)


def _slurm_works() -> bool:
    """sbatch is there, and a partition that it would take jobs for."""
    environment = os.environ | slurm.site_options(ROOT)
    return slurm.available() and site.slurm(environment)[0].status != "error"


def _submit(chapter: Chapter, *options: str) -> list[str]:
    return ["submit", "--list", str(chapter.list), *options]


def _queued(found: list[Chapter], steps: Steps, arguments: argparse.Namespace) -> dict[str, list[Step]]:
    """All chapters' jobs, in the queue together; returns when they have ended, or at the limit."""
    after = ["--", *arguments.after_dashes] if arguments.after_dashes else []
    options = ["--yes", "--logs", str(steps.logs), *after]
    steps_of = {
        chapter.name: [steps.tool("submit", _submit(chapter, *options), (0, 1), f"{chapter.name}-submit.txt")]
        for chapter in found
    }
    lines = [line for chapter in found for line in chapter.lines]
    if not wait_for_queue(lines, steps.logs, arguments.wait):
        print(f"after {arguments.wait:g} minutes jobs are left: squeue --me; go on with --logs {steps.logs}")
    return steps_of


def _started_here(chapter: Chapter, steps: Steps) -> Step:
    options = ["--local", "--yes", "--logs", str(steps.logs)]
    return steps.tool("submit", _submit(chapter, *options), (0, 1), f"{chapter.name}-submit.txt", live=True)


def _finished(chapter: Chapter, steps: Steps, started: list[Step], local: bool) -> Rehearsed:
    """Go on with what was told to end, as a participant would; then the tables and the plot."""
    resumed = []
    for outcome in outcomes(chapter, find_runs(steps.logs), local):
        if outcome.state == "preempted" and outcome.run:
            words = ["submit", "--resume", str(outcome.run.folder), *(["--local"] if local else [])]
            resumed.append(steps.tool("resume", words, file=f"resumed-{outcome.run.folder.name}.txt"))
            if not resumed[-1].problem:
                wait_for_end(outcome.run.folder, _RESUMED_MIN)
    after = [*started, *resumed, *steps.tables_and_plot(chapter.name)]
    return Rehearsed(chapter, outcomes(chapter, find_runs(steps.logs), local), after, local)


def _row(one: Rehearsed) -> list[str]:
    states = [outcome.state for outcome in one.outcomes]
    runs = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    wrong = {step.tool for step in one.steps if step.problem}
    cells = ["FAILED" if name in wrong else "ok" for name in _COLUMNS]
    return [one.chapter.name, runs, *cells, f"{one.took_s:.0f}"]


def _report(done: list[Rehearsed], steps: Steps, took_s: float) -> tuple[str, bool]:
    """The report's text, and whether anything failed."""
    table = text_table([["exercise", "runs", *_COLUMNS, "seconds"], *map(_row, done)])
    problems, logs = [], shlex.quote(str(steps.logs))
    for one in done:
        for outcome in one.outcomes:
            if outcome.failed:
                where = "--local" if one.local else ""
                again = f"--match {shlex.quote(outcome.line.written)} --again --logs {logs} {where}".strip()
                problems.append(
                    f"{one.chapter.name}: {outcome.line.written}: {outcome.state}{_why(outcome.run, one.steps)}\n"
                    f"  source {ROOT}/tiny.env && python -m tools submit --list {one.chapter.list} {again}"
                )
        problems += [
            f"{one.chapter.name}: {step.name}: {step.problem}\n  {step.command}" for step in one.steps if step.problem
        ]
    skipped = [f"{o.line.written}: {o.skipped}" for one in done for o in one.outcomes if o.skipped]
    parts = [table, *(["skipped here:", *skipped] if skipped else [])]
    parts += [f"\n{len(problems)} failed; each with the command that repeats it:", *problems] if problems else []
    exercises = counted(len(done), "exercise")
    parts.append(f"\n{exercises} in {took_s / 60:.1f} minutes: {len(problems) or 'nothing'} failed")
    return "\n".join(parts), bool(problems)


def _why(run: Run | None, steps: list[Step]) -> str:
    if run:
        return f": {run.reason}; {run.folder}" if run.reason else f"; {run.folder}"
    lines = steps[0].output.read_text(errors="replace").splitlines()
    errors = [line.strip() for line in lines if "error: " in line]
    return f": {errors[-1]}" if errors else f"; see {steps[0].output}"
