"""Queue every run of an exercise's submit.txt, or of all exercises; without SLURM, run them one after the other."""

import argparse
import json
import os
import shlex
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from tools.commands.options import several
from tools.commands.runs import next_command
from tools.errors import InputError
from tools.logs.run import is_mine
from tools.logs.runs import default_logs, find_runs, read_run
from tools.plan.gpus import GPUS, at_hand, named
from tools.plan.submitted_lines import fits
from tools.submit import local_runs, slurm, snapshot
from tools.submit.submissions import Submission, exercise_files, known_settings, read_list, shell_notes
from tools.submit.submitted import STATES, read_as_job, runs_of
from tools.tables.markdown import markdown
from workshop.record.exercises import REPO, find_exercise, repository_of
from workshop.record.printable import counted
from workshop.record.slurm_job import available, queued_again

_INTERRUPTED = 130  # as a shell says it of a program ended by Ctrl-C


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = f"{parser.prog} [EXERCISE ...] [options] [-- SBATCH_OPTION ...]"
    parser.add_argument("exercises", nargs="*", metavar="EXERCISE", help="default: every folder with a submit.txt")
    parser.add_argument("--list", type=Path, metavar="FILE", help="a list of runs, not the exercises' submit.txt")
    parser.add_argument("--only", default="", metavar="STATES", help=f"only runs in these states: {', '.join(STATES)}")
    parser.add_argument("--match", default="", metavar="TEXT", help="only lines that contain this text")
    parser.add_argument("--resume", type=Path, metavar="RUN", help="continue this run as it was started")
    parser.add_argument("--again", action="store_true", help="also what is already completed")
    parser.add_argument("--gpu", metavar="TYPE", help=f"say of each run whether it fits: {', '.join(GPUS)}")
    parser.add_argument("--yes", action="store_true", help="do not ask before a run that cannot fit is queued")
    parser.add_argument("--dry-run", action="store_true", help="show what would happen, do nothing")
    parser.add_argument("--local", action="store_true", help="run here although there is SLURM")
    parser.add_argument("--logs", type=Path, default=None, help="folder of the runs (default: $LOG_DIR, else logs/)")


def main(arguments: argparse.Namespace) -> int:
    logs = (arguments.logs or default_logs()).resolve()
    local = arguments.local or not available()
    if arguments.resume:
        return _resume(arguments, logs, local)
    submissions = _selected_lines(arguments)
    due = _due(submissions, logs, local, arguments)
    if not due:
        print("nothing to do")
        return 0
    for line in due:
        read_as_job(line)  # what its job would refuse is not queued
    due = _willing(due, arguments)
    if arguments.dry_run:
        verb = "run here" if local else "queue"
        print("\n".join(f"would {verb}  {line.place}  {line.short}" for line in due))
        print(f"{len(due)} to {verb}; --dry-run: nothing was done")
        return 0
    tasks = _tasks(due, logs)
    return _run_here(tasks, logs) if local else _queue(tasks, logs)


def _willing(due: list[Submission], arguments: argparse.Namespace) -> list[Submission]:
    """The due runs that the user starts; prints whether each fits, if the GPU is known, and asks."""
    name, fitting = arguments.gpu or at_hand(), []
    if not name:
        return due
    for line, (verdict, may_fit) in zip(due, fits(due, named(name)), strict=True):
        print(f"{name}  {verdict}  {line.place}  {line.short}")
        fitting += [line] if may_fit else []
    if len(fitting) == len(due) or arguments.yes or arguments.dry_run:
        return due
    told = f"{len(due) - len(fitting)} of {counted(len(due), 'run')} cannot fit"
    if not sys.stdin.isatty():
        print(f"note: {told}; not a terminal, so they are started all the same")
        return due
    answer = input(f"{told}. Start them all the same? [y/N] ")
    return due if answer.strip().lower() in ("y", "yes") else fitting


def _resume(arguments: argparse.Namespace, logs: Path, local: bool) -> int:
    refused = [f"--{name}" for name in ("list", "only", "match", "again", "gpu", "yes") if getattr(arguments, name)]
    refused += ["sbatch options"] if local and arguments.after_dashes else []
    if given := [*arguments.exercises, *refused]:
        raise InputError(
            f"--resume {arguments.resume}: the run continues as it was started; expected no {', '.join(given)}"
        )
    command, options, environment = started_again(arguments.resume, logs, os.environ)
    options += arguments.after_dashes
    if arguments.dry_run:
        print(f"would {'run here' if local else 'queue'}  {shlex.join([*([] if local else options), *command])}")
        return 0
    if local:  # this process becomes the launcher: subprocess.run would kill it a moment after Ctrl-C
        os.execvpe("bash", ["bash", *command], environment)
    environment = slurm.site_options(Path(environment["SHARDLAB"])) | environment
    print(f"job {slurm.sbatch(options, command, environment)}")
    return 0


def started_again(folder: Path, logs: Path, shell: Mapping[str, str]) -> tuple[list[str], list[str], dict[str, str]]:
    """The launcher with its arguments, sbatch's options and the environment that continue the run in `folder`.

    The folder's name alone is looked for in `logs`. The run's settings win over the shell's; SHARDLAB names its code.

    Raises:
        InputError: it is no run folder or another user's, the run is completed or still running, or it was not started
            with a launcher of this repository.
    """

    def refusal(found: object, expected: str) -> InputError:
        return InputError(f"--resume {folder.name}: {found}; expected {expected}")

    folders = [path for path in (folder, *logs.glob(f"*/{folder.name}")) if (path / "run.json").is_file()]
    if not folders:
        raise refusal("no run.json there", "a run folder such as logs/fsdp/<run>")
    folder = folders[0].resolve()
    for path in (folder, folder / ".resume.json"):
        if path.exists() and not is_mine(path):
            raise refusal(f"{path} is not yours", "a run that you started yourself")
    run = read_run(folder)
    if run.state in ("completed", "running", "unreadable"):
        raise refusal(run.problem or run.state, "a run that ended before its end")
    if queued_again(job := run.record.slurm_job_id):
        raise refusal(f"SLURM has queued job {job} again, which continues it", f"to wait, or `scancel {job}` first")
    try:
        started = json.loads((folder / ".resume.json").read_text())
        command, settings = started["command"], started["settings"]
        launcher = Path(command[0]).resolve(strict=True)
        if not all(isinstance(word, str) for word in (*command, *settings.values())):
            raise TypeError(".resume.json: expected texts")
    except (OSError, ValueError, TypeError, LookupError, AttributeError) as error:
        raise refusal(error, "a run of this version of the launchers, and its launcher where it was") from None
    exercise = launcher.parent
    code = repository_of(exercise)
    snapshots = (logs.resolve() / ".code", folder.parents[1] / ".code")
    is_snapshot = code.parent in snapshots and all(
        is_mine(path) for path in (launcher, *launcher.parents) if path.is_relative_to(code.parent)
    )
    if launcher.suffix != ".slurm" or not (code == REPO or is_snapshot):
        expected = f"a .slurm of {REPO}, or of a snapshot that `submit` made for you in {snapshots[-1]}"
        raise refusal(f"it was started with {launcher}", expected)
    if unknown := settings.keys() - known_settings(exercise) - {"LOG_DIR"}:
        raise refusal(f".resume.json sets {', '.join(sorted(unknown))}", "settings")
    settings.pop("CONDA_SH_PATH", None)  # a program that bash would run: never from a file
    nodes, gpus = (str(count or 1) for count in (run.record.nodes, run.record.gpus_per_node))
    shape = {"GPUS_PER_NODE": gpus} | ({"EMULATED_NODES": nodes} if nodes != "1" else {})
    # tiny.env's single thread, which is no setting: with more a resumed run is ten times slower on a busy laptop.
    threads = {"OMP_NUM_THREADS": str(run.record.cpu_threads)} if run.record.cpu_threads else {}
    mark = {"SUBMISSION": run.record.submission} if run.record.submission else {}
    resumed = {"RESUME_RUN": str(folder), "SHARDLAB": str(code)}
    environment = dict(shell) | settings | shape | threads | mark | resumed
    options = [f"--nodes={nodes}", f"--gpus-per-node={gpus}"]
    if memory_mib := started.get("memory_mib"):  # an offload needs more than its launcher asks for
        options.append(f"--mem={memory_mib}M")
    return [str(launcher), *command[1:]], options, environment


def _selected_lines(arguments: argparse.Namespace) -> list[Submission]:
    if arguments.list and arguments.exercises:
        raise InputError(f"--list {arguments.list}: names its exercises itself; expected no {arguments.exercises[0]!r}")
    files = [arguments.list] if arguments.list else exercise_files(arguments.exercises)
    lines = [line for file in files for line in read_list(file, os.environ, arguments.after_dashes)]
    lines = [line for line in lines if line.contains(arguments.match)]
    if not lines:
        raise InputError(f"--match {arguments.match!r}: no line of {', '.join(map(str, files))}")
    if notes := shell_notes(lines, os.environ):
        print("\n".join(notes))
    return lines


def _due(lines: list[Submission], logs: Path, local: bool, arguments: argparse.Namespace) -> list[Submission]:
    """The lines to run now; prints why the others do not run."""
    only = several("--only", arguments.only, STATES)
    runs = find_runs(logs) if logs.is_dir() else []
    queue = {} if local else slurm.queue()
    due: dict[tuple[Path, str], Submission] = {}
    for line in lines:
        runs_here = runs_of(line, runs)
        completed = [run for run in runs_here if run.state == "completed"]
        state = queue.get(slurm.mark(line, logs)) or (runs_here[-1].state if runs_here else "missing")
        if same := due.get((line.exercise, line.text)):
            reason = f"same as {same.place}"
        elif state in ("queued", "running"):
            reason = f"{state} already"
        elif only and state not in only:
            reason = state
        elif completed and not only and not arguments.again:
            reason = f"completed in {completed[-1].folder.name}"
        elif local and line.count("nodes") > 1:
            reason = f"needs SLURM for its {line.count('nodes')} nodes"
        else:
            due[line.exercise, line.text] = line
            continue
        print(f"skipped: {reason}  {line.place}  {line.short}")
    return list(due.values())


def _tasks(due: list[Submission], logs: Path) -> list[local_runs.Task]:
    """Each line with its launcher, in a snapshot of the code as it is now, and the launcher's environment.

    A job runs a copy of its launcher, and learns from SHARDLAB where its code lies.
    """
    tasks, code = [], {}
    for line in due:
        root = repository_of(line.exercise)
        if root not in code:
            code[root] = snapshot.take(root, logs)
            for path in code[root].left_out:
                size = f"untracked, over {snapshot.LARGEST_UNTRACKED_BYTES >> 20} MiB"
                print(f"note: {path} is not in the snapshot ({size})")
        folder = code[root].folder
        command = [str(folder / line.exercise.relative_to(root) / line.launcher), *line.arguments]
        variables = {"LOG_DIR": str(logs), "SUBMISSION": line.text, "SHARDLAB": str(folder)}
        tasks.append((line, command, os.environ | line.settings | variables))
    return tasks


def _queue(tasks: list[local_runs.Task], logs: Path) -> int:
    queued = []
    for submission, command, environment in tasks:
        options = [f"--comment={slurm.mark(submission, logs)}", *submission.options]
        try:
            job = slurm.sbatch(options, command, slurm.site_options(repository_of(submission.exercise)) | environment)
            print(f"job {job}  {submission.place}  {submission.short}", flush=True)
            queued.append(submission)
        except InputError as error:
            print(f"error: {submission.place}: {error}", file=sys.stderr)
    refused = len(tasks) - len(queued)
    print(f"{len(queued)} queued{f', {refused} refused by sbatch' if refused else ''}")
    if queued:
        print("when they have ended, fill the tables:")
        _print_next(queued, logs)
    return 1 if refused else 0


def _run_here(tasks: list[local_runs.Task], logs: Path) -> int:
    tasks = [
        (line, ["bash", *command], environment | {"GPUS_PER_NODE": str(line.count("gpus-per-node"))})
        for line, command, environment in tasks
    ]
    states, interrupted = local_runs.run_each(tasks, logs / ".local")
    ended = [(line, state) for (line, *_), state in zip(tasks, states, strict=True)]
    print("\n" + markdown(("run", "state"), [(f"{line.exercise.name}: {line.short}", state) for line, state in ended]))
    print(f"\n{', '.join(f'{count} {state}' for state, count in Counter(states).items())}")
    if completed := [line for line, state in ended if state == "completed"]:
        print("fill the tables:")
        _print_next(completed, logs)
    stopped = [line for line, state in ended if state in ("preempted", "timeout", "cancelled")]
    following = [next_command(runs_of(line, find_runs(logs)), "") for line in stopped]
    if commands := [command for command in following if "--resume" in command]:
        print("continue the runs that were stopped, each in its own folder:")
        print("\n".join(f"  {command}" for command in commands))
    return _INTERRUPTED if interrupted else int(any(state != "completed" for state in states))


def _print_next(submissions: list[Submission], logs: Path) -> None:
    """Print how to fill the tables: models' tables for a list such as speed-ladder/models.txt, else the exercise's."""
    commands = {}
    for line in submissions:
        name = line.file.stem.split("_")[0]
        exercise = name if find_exercise(name, "tables.py", REPO) else line.exercise.name
        commands[f"  python -m tools fill {exercise} --logs {logs}{' --tiny' if line.tiny else ''}"] = None
    print("\n".join(commands))
