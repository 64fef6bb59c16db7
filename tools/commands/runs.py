"""List runs: what ran, where, how it ended and, with --figures, what it measured; or sum up one run."""

import argparse
import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tools.commands.options import (
    add_logs_option,
    chosen_logs,
    chosen_runs,
    no_runs,
    print_csv,
    same_runs,
    several,
    single_run,
)
from tools.errors import InputError
from tools.logs.figures import OF_ONE_RUN, text_of, value_of
from tools.logs.run import SHOWN_STATES, Run, duration, is_mine
from tools.logs.runs import progress
from tools.tables.markdown import text_table
from workshop.record.exercises import REPO
from workshop.record.printable import counted, one_line
from workshop.record.slurm_job import available, queued_again

# Columns that are shown only where runs differ.
_SETTINGS = ("adapters", "lora_rank", "gradient_checkpointing", "compile", "learning_rate", "seed", "git_commit")
_SELDOM = (*_SETTINGS, "rung", "fault", "repeat", "owner")
_REASON_WIDTH = 100
# Columns of csv, before the figures.
_IN_CSV = ("folder", "state", "start", "exercise", "config", "model", "method", "rung", "precision", "ran_in", "gpu")
_IN_CSV += ("nodes", "gpus_per_node", "grad_acc", "max_length", "train_examples", *_SETTINGS, "repeat", "reason")

# Lines of a run's summary, with the words behind each figure.
_SUMMARY = {
    "loss": {"last_loss": "in the last tenth of the steps", "eval_loss_final": "in the last evaluation"},
    "speed": {"samples_per_second": "samples/s", "step_time_ms": "ms per step"},
    "peak memory": {
        "peak_gpu_mib": "MiB of GPU memory",
        "peak_cpu_pss_mib": "MiB of CPU memory (PSS)",
        "peak_cpu_mib": "MiB of CPU memory (RSS)",
    },
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    what = "an exercise or EXPERIMENT_NAME (default: all); or the folder of one run: its loss, speed and memory"
    parser.add_argument("experiment", nargs="?", metavar="EXPERIMENT or RUN_FOLDER", help=what)
    add_logs_option(parser)
    names = "columns of figures; `fill --explain` lists the names"
    parser.add_argument("--figures", default="", metavar="NAME,NAME", help=names)
    parser.add_argument("--state", default="", help=f"only these, separated by commas: {', '.join(SHOWN_STATES)}")
    parser.add_argument("--format", choices=("text", "csv"), default="text", help="csv: all figures, unrounded")


def main(arguments: argparse.Namespace) -> int:
    states = several("--state", arguments.state, SHOWN_STATES)
    choices = states or arguments.figures or arguments.format != "text"
    named = arguments.experiment or ""
    if "/" in named or Path(named, "run.json").exists():  # a name of an experiment has no slash
        if choices or arguments.logs or arguments.owner:
            raise InputError(f"{arguments.experiment}: a run's folder; expected no options, or it after --logs")
        _print_summary(single_run(Path(arguments.experiment)))
        return 0
    figures = [OF_ONE_RUN[name] for name in several("--figures", arguments.figures, OF_ONE_RUN)]
    runs = chosen_runs(arguments, arguments.experiment)
    if not runs:
        raise no_runs(chosen_logs(arguments), arguments.experiment)
    shown = [run for run in runs if not states or run.state in states]
    if arguments.format == "csv":
        print_csv([[*_IN_CSV, *OF_ONE_RUN], *map(_csv_row, progress(shown, "reading logs"))])
        return 0
    if shown:
        rows = []
        for run in progress(shown, "reading logs"):
            reason = run.reason if len(run.reason) <= _REASON_WIDTH else f"{run.reason[: _REASON_WIDTH - 3]}..."
            measured = {f"{one.name} ({one.unit})" if one.unit else one.name: text_of(run, one.name) for one in figures}
            rows.append(_row(run) | measured | {"reason": reason})
        # A run that ended before its training wrote its settings differs in none.
        trained = [row for row, run in zip(rows, shown, strict=True) if run.settings]
        values = {name: {row[name] for row in (rows if name == "owner" else trained)} for name in _SELDOM}
        values["step"] = {"-", *(row["step"] for row in rows)}
        header = [name for name in rows[0] if name not in values or len(values[name]) > 1]
        print(f"{text_table([header, *([row[name] for name in header] for row in rows)])}\n")
    counts = Counter(run.state for run in runs)
    told = ", ".join(f"{counts[state]} {state}" for state in SHOWN_STATES if counts[state])
    print(f"{counted(len(runs), 'run')}: {told}")
    if hint := next_command(shown, same_runs(arguments)):
        print(f"next: {hint}")
    return 0


def _print_summary(run: Run) -> None:
    for title, words in _SUMMARY.items():
        values = {name: value for name in words if (value := value_of(run, name)) is not None}
        told = [f"{OF_ONE_RUN[name].written(value)} {words[name]}" for name, value in values.items()]
        if told or run.state == "completed":
            print(f"{title}: {', '.join(told) or 'not measured'}")
    print(f"evidence: {run.folder}")
    logs = run.folder.resolve().parents[1]
    # The next command looks there anyway, also from a snapshot of the code.
    elsewhere = "" if logs == REPO / "logs" or logs in REPO.parents else f" --logs {shlex.quote(str(logs))}"
    if hint := next_command([run], elsewhere):
        print(f"next: {hint}")


def next_command(shown: Sequence[Run], options: str) -> str:
    """The next command for the newest run, or ""; `options`: options with which the tables find it."""
    newest = next((run for run in reversed(shown) if not run.problem), None)
    if newest and newest.state == "completed":
        return f"python -m tools fill {newest.record.exercise}{options}{' --tiny' if newest.tiny else ''}"
    stopped = newest and newest.state in ("preempted", "timeout", "cancelled")
    mine = stopped and is_mine(newest.folder) and is_mine(newest.folder / ".resume.json")
    if mine and queued_again(newest.record.slurm_job_id):
        return f"squeue --jobs={newest.record.slurm_job_id}    # SLURM has queued it again, and it continues this run"
    if mine and any(newest.folder.glob("*/checkpoint-*/manifest.json")):
        here = " --local" if available() and not newest.record.slurm_job_id else ""  # else it would be queued
        return f"python -m tools submit --resume {shlex.quote(str(newest.folder))}{here}"
    if newest and (newest.folder / "train.out").exists():
        return f"{'tail -f' if newest.state == 'running' else 'less'} {shlex.quote(str(newest.folder / 'train.out'))}"
    return ""


def _row(run: Run) -> dict[str, str]:
    """The values of run.json by column."""
    record, settings, runtime = run.record, run.settings, run.runtime_s
    names = record.gpu_names or (["CPU"] if record.device == "cpu" else [])
    on = f" x {names[0].removeprefix('NVIDIA ')}" if names else ""
    method = run.method if run.method != "none" else None
    batch = f"{settings['batch_size']} x {settings['grad_acc']}" if run.examples_per_gpu_step else None
    cells = {
        "run": run.folder,
        "config": record.config or method,
        "rung": run.rung,
        "fault": run.fault,
        "model": run.model,
        "precision": record.precision or (run.precision if settings else None),
        "batch": batch,
        "processes": f"{run.world_size}{on}" if run.world_size else None,
        "nodes": record.nodes,
        "length": _length(run),
        **{name: run.fact(name) for name in _SETTINGS},
        "git_commit": record.git_commit and record.git_commit[:7],
        "repeat": run.repeat,
        "owner": run.owner,
        "state": run.state,
        "step": None if run.state == "completed" else run.progress,
        "runtime": None if runtime is None else duration(runtime),
    }
    return {name: "-" if value is None else one_line(str(value)) for name, value in cells.items()}


def _csv_row(run: Run) -> list[object]:
    computed = {"folder": one_line(str(run.folder)), "ran_in": run.record.precision}
    computed["gpu"] = next(iter(run.record.gpu_names), None)
    facts = [computed[name] if name in computed else run.fact(name) for name in _IN_CSV]
    return [*facts, *(value_of(run, name) for name in OF_ONE_RUN)]


def _length(run: Run) -> str | None:
    """How long it trained, as asked for: a short test run is not the real one."""
    examples, epochs = run.train_examples, run.epochs
    if steps := run.settings.get("max_steps"):
        return counted(steps, "step")
    return f"{epochs} x {examples:,}" if epochs and examples else None
