"""List runs: what ran, where, and how it ended."""

import argparse
from collections import Counter
from pathlib import Path

from tools.errors import InputError, NoRunsError
from tools.repository import no_runs
from tools.runs import SHOWN_STATES, Run, default_logs, find_runs

_HEADER = ["run", "config", "model", "gpus", "nodes", "state", "runtime", "reason"]
_REASON_WIDTH = 100


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("experiment", nargs="?", help="an exercise or EXPERIMENT_NAME; default: all")
    parser.add_argument("--logs", type=Path, default=None, help="folder of the runs (default: $LOG_DIR, else logs/)")
    parser.add_argument("--state", default="", help=f"only these, separated by commas: {', '.join(SHOWN_STATES)}")


def run(arguments: argparse.Namespace) -> int:
    logs = arguments.logs or default_logs()
    states = [state.strip() for state in arguments.state.split(",") if state.strip()]
    if unknown := [state for state in states if state not in SHOWN_STATES]:
        raise InputError(f"--state {', '.join(unknown)}: unknown; states are {', '.join(SHOWN_STATES)}")
    found = find_runs(logs, arguments.experiment)
    if not found and arguments.experiment:
        raise no_runs(logs, arguments.experiment)
    if not found:
        raise NoRunsError(f"no runs in {logs}. Start one with `sbatch` or `bash` and an exercise's launcher (*.slurm).")
    shown = [run for run in found if not states or run.state in states]
    if shown:
        print(_text_table([_HEADER, *(_row(run) for run in shown)]))
        print()
    counts = Counter(run.state for run in found)
    print(f"{len(found)} runs: {', '.join(f'{counts[state]} {state}' for state in SHOWN_STATES if counts[state])}")
    newest = next((run for run in reversed(shown) if run.state == "completed"), None)
    if newest:
        print(f"next: python -m tools fill {newest.record['exercise']} --logs {logs}")
    elif shown and (shown[-1].folder / "train.out").exists():
        print(f"next: less {shown[-1].folder / 'train.out'}")
    return 0


def _row(run: Run) -> list[str]:
    facts = run.facts
    runtime = run.runtime_s
    reason = run.reason if len(run.reason) <= _REASON_WIDTH else run.reason[: _REASON_WIDTH - 3] + "..."
    gpus = "none" if run.record.get("device") == "cpu" else facts["world_size"]
    cells = ["-" if value is None else str(value) for value in (facts["config"], facts["model"], gpus, facts["nodes"])]
    return [str(run.folder), *cells, run.state, "-" if runtime is None else _duration(runtime), reason]


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


def _text_table(rows: list[list[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )
