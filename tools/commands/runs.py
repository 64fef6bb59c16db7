"""List runs: what ran, where, how it ended and, with --figures, what it measured."""

import argparse
import sys
from collections import Counter
from pathlib import Path

from tools.commands.logs_option import add_logs_option, as_options, chosen_logs
from tools.errors import InputError
from tools.logs.run import SHOWN_STATES, Run
from tools.logs.runs import find_runs, measure_all
from tools.tables import fill as tables
from tools.tables.metrics import METRICS
from tools.tables.repository import no_runs

_HEADER = ["run", "config", "model", "gpus", "nodes", "state", "runtime"]
_REASON_WIDTH = 100
_EXPORTS = ("csv", "json", "parquet")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("experiment", nargs="?", help="an exercise or EXPERIMENT_NAME; default: all")
    add_logs_option(parser)
    parser.add_argument(
        "--figures", default="", metavar="NAME,NAME", help="columns of figures; `fill --explain` lists the names"
    )
    parser.add_argument("--state", default="", help=f"only these, separated by commas: {', '.join(SHOWN_STATES)}")
    parser.add_argument(
        "--format",
        choices=("text", *_EXPORTS),
        default="text",
        help="csv, json, parquet: every figure of every run, unrounded",
    )
    parser.add_argument("--output", type=Path, metavar="FILE", help="where --format writes; parquet needs one")
    parser.add_argument("--columns", action="store_true", help="print what the columns of --format are instead")


def run(arguments: argparse.Namespace) -> int:
    if arguments.columns:
        from tools.tables import frame  # pandas, half a second, only where it is needed

        print(frame.columns())
        return 0
    if (arguments.output and arguments.format == "text") or (arguments.format == "parquet" and not arguments.output):
        raise InputError(f"--format {arguments.format}: --output FILE is for csv and json, and needed for parquet")
    logs = chosen_logs(arguments)
    states = [state.strip() for state in arguments.state.split(",") if state.strip()]
    if unknown := [state for state in states if state not in SHOWN_STATES]:
        raise InputError(f"--state {', '.join(unknown)}: unknown; states are {', '.join(SHOWN_STATES)}")
    metrics = _metrics(arguments.figures)
    found = find_runs(*logs, experiment=arguments.experiment)
    if not found:
        raise no_runs(logs, arguments.experiment)
    shown = [run for run in found if not states or run.state in states]
    if arguments.format != "text":
        _export(shown, arguments.format, arguments.output)
        return 0
    if shown:
        measure_all(shown if metrics else [run for run in shown if run.needs_cause])
        rows = (
            [*_row(run), *(tables.figure_of(run, METRICS[name]) for name in metrics), _reason(run)] for run in shown
        )
        print(_text_table([[*_HEADER, *map(_title, metrics), "reason"], *rows]))
        print()
    counts = Counter(run.state for run in found)
    print(f"{len(found)} runs: {', '.join(f'{counts[state]} {state}' for state in SHOWN_STATES if counts[state])}")
    newest = next((run for run in reversed(shown) if run.state == "completed"), None)
    if newest:
        print(f"next: python -m tools fill {newest.record['exercise']}{as_options(logs)}")
    elif shown and (shown[-1].folder / "train.out").exists():
        print(f"next: less {shown[-1].folder / 'train.out'}")
    return 0


def _export(runs: list[Run], form: str, output: Path | None) -> None:
    from tools.tables import frame

    table = frame.frame_of(runs)
    target = output or sys.stdout
    match form:
        case "csv":
            table.to_csv(target, index=False)
        case "json":
            table.to_json(target, orient="records", date_format="iso", indent=2)
        case "parquet":
            table.to_parquet(target, index=False)


def _metrics(names: str) -> list[str]:
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    if unknown := [name for name in wanted if name not in METRICS]:
        raise InputError(f"--figures {', '.join(unknown)}: unknown; known are {', '.join(METRICS)}")
    return wanted


def _title(metric: str) -> str:
    return f"{metric} ({METRICS[metric].unit})" if METRICS[metric].unit else metric


def _row(run: Run) -> list[str]:
    """What is in run.json."""
    facts, runtime = run.facts, run.runtime_s
    gpus = "none" if run.record.get("device") == "cpu" else facts["world_size"]
    cells = ["-" if value is None else str(value) for value in (facts["config"], facts["model"], gpus, facts["nodes"])]
    return [str(run.folder), *cells, run.state, "-" if runtime is None else _duration(runtime)]


def _reason(run: Run) -> str:
    return run.reason if len(run.reason) <= _REASON_WIDTH else run.reason[: _REASON_WIDTH - 3] + "..."


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


def _text_table(rows: list[list[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )
