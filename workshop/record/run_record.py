"""run.json: what ran and how it ended. The supervisor opens and closes it, rank 0 adds what only it knows."""

import json
from pathlib import Path
from typing import Any

from workshop.record import csv_log
from workshop.record.control import Control
from workshop.record.errors import InputError, LogError

STACKS = "stacks"  # folder of the ranks' stacks (workshop/training/hangs.py)


def read_run_record(run_dir: Path) -> dict[str, Any]:
    """run.json; {} without one, or if it is damaged."""
    return _read(run_dir / "run.json")


def update_run_record(run_dir: Path, **facts: Any) -> None:
    """Add `facts` to run.json."""
    _write(run_dir / "run.json", read_run_record(run_dir) | facts)


def read_summary(run_dir: Path) -> dict[str, Any]:
    """summary.json; {} without one, or if it is damaged."""
    return _read(run_dir / "summary.json")


def add_to_summary(run_dir: Path, figures: dict[str, Any]) -> None:
    """Add `figures` to summary.json."""
    _write(run_dir / "summary.json", read_summary(run_dir) | figures)


def _read(file: Path) -> dict[str, Any]:
    try:
        values = json.loads(file.read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return values if isinstance(values, dict) else {}


def _write(file: Path, values: dict[str, Any]) -> None:
    """The file is replaced as a whole, so a reader never sees half of it."""
    temporary = file.with_suffix(".tmp")
    temporary.write_text(json.dumps(values, indent=2) + "\n")
    temporary.replace(file)


def record_settings(settings: Any, listens: bool = False) -> None:
    """Write the settings into run.json, by one rank, before the model is made: also a run whose model does not fit
    shows them.

    Args:
        listens: the training saves when it is told to end; otherwise it gets no signals.

    Raises:
        InputError: the launcher started another number of processes than nodes x GPUs per node.
    """
    start = settings.start
    if start.processes != start.nodes * start.gpus_per_node:
        expected = f"{start.nodes} nodes x {start.gpus_per_node} GPUs per node"
        raise InputError(f"{start.processes} processes were started; expected {expected}")
    if start.rank == 0:
        update_run_record(settings.run_dir, settings=settings.as_record())
        if not listens:
            Control(settings.run_dir).say("saves nothing")


def last_attempt(run_dir: Path) -> dict[str, Any]:
    """Return how the last attempt ended; {} in the first."""
    return (read_run_record(run_dir).get("attempts") or [{}])[-1]


def update_last_attempt(run_dir: Path, **facts: Any) -> None:
    attempts = read_run_record(run_dir)["attempts"]
    update_run_record(run_dir, attempts=[*attempts[:-1], attempts[-1] | facts])


def last_step(run_dir: Path) -> int:
    """Return the last step in steps.csv; 0 without a step, or if it is damaged."""
    try:
        return max((int(row["step"]) for _, row in csv_log.step_rows(run_dir / "steps.csv")), default=0)
    except (LogError, ValueError):
        return 0
