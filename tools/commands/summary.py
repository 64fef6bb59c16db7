"""Summarise one run: loss, speed, peak memory, the next command."""

import argparse
import shlex
from pathlib import Path

from tools.commands.options import single_run
from tools.commands.runs import next_command
from tools.logs.figures import FIGURES, figure
from tools.tables.repository import ROOT

# Per line the figures, each with the words around it.
_LINES = {
    "loss": (("last_loss", "{} in the last tenth of the steps"), ("eval_loss_final", "{} in the last evaluation")),
    "speed": (("samples_per_second", "{} samples/s"), ("step_time_ms", "{} ms per step")),
    "peak memory": (
        ("peak_gpu_mib", "{} MiB of GPU memory"),
        ("peak_cpu_pss_mib", "{} MiB of CPU memory (PSS)"),
        ("peak_cpu_mib", "{} MiB of CPU memory (RSS)"),
    ),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=Path, metavar="RUN_FOLDER", help="such as logs/baseline/20261121-094500-j4711")


def run(arguments: argparse.Namespace) -> int:
    run = single_run(arguments.run)
    for name, parts in _LINES.items():
        figures = [(FIGURES[one], figure(run, one), words) for one, words in parts]
        told = [words.format(one.written(value)) for one, value, words in figures if value is not None]
        if told or run.state == "completed":
            print(f"{name}: {', '.join(told) or 'not measured'}")
    print(f"evidence: {run.folder}")
    logs = run.folder.resolve().parents[1]
    # The next command looks there anyway; a snapshot of the code lies there, too.
    elsewhere = "" if logs == ROOT / "logs" or logs in ROOT.parents else f" --logs {shlex.quote(str(logs))}"
    if hint := next_command([run], elsewhere):
        print(f"next: {hint}")
    return 0
