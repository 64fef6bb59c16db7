"""What one run gave, in a few lines: loss, speed, peak memory, the tables' cells, its evidence, the next command."""

import argparse
import shlex
import sys
from pathlib import Path

from run_folder.printable import one_line
from tools.commands.options import single_run
from tools.commands.runs import next_command, tiny_option
from tools.errors import InputError
from tools.logs.figures import FIGURES
from tools.logs.run import Run
from tools.logs.runs import find_runs
from tools.tables import run_cells
from tools.tables.fill import written
from tools.tables.repository import ROOT

# Per line the figures, each with the words around it.
_LINES = {
    "loss": (("last_loss", "{} in the last tenth of the steps"), ("eval_loss_final", "{} in the last evaluation")),
    "speed": (("samples_per_second", "{}"), ("step_time_ms", "{} per step")),
    "peak memory": (("peak_gpu_mib", "{} of GPU memory"), ("peak_cpu_pss_mib", "{} of CPU memory")),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=Path, metavar="RUN_FOLDER", help="such as logs/baseline/20261121-094500-j4711")


def run(arguments: argparse.Namespace) -> int:
    run = single_run(arguments.run)
    if run.is_replay:
        print("replay, not measured")
    for name, parts in _LINES.items():
        figures = [(FIGURES[figure], getattr(run.figures, figure), words) for figure, words in parts]
        told = [words.format(written(one, value, False)) for one, value, words in figures if value is not None]
        if told or run.state == "completed":
            print(f"{name}: {', '.join(told) or 'not measured'}")
    options = _elsewhere(run.folder)
    chapter = _print_cells(run, options) if run.state == "completed" else ""
    print(f"evidence: {run.folder}")
    if hint := next_command([run], options, chapter):
        print(f"next: {hint}")
    return 0


def _print_cells(run: Run, options: str) -> str:
    """The cells that the run fills, or why it fills none; gives the folder whose tables they are in."""
    try:
        runs = find_runs(run.folder.resolve().parents[1], replays=True)
        found, why_none = run_cells.cells_of(run.folder.resolve(), runs)
    except Exception as error:  # the run has completed, whatever is wrong with the tables
        what = str(error) if isinstance(error, (InputError, OSError)) else repr(error)
        print(f"warning: the cells it fills are not known: {one_line(what)}", file=sys.stderr)
        return ""
    exercise = run.record["exercise"]
    for line in run_cells.cell_lines(found, f"{options}{tiny_option(run)}") or [f"none: {why_none}"]:
        print(f"cells: {line}")
    return exercise if not found or exercise in {one.folder for one in found} else found[0].folder


def _elsewhere(run: Path) -> str:
    """--logs, unless the next command looks there anyway; a snapshot of the code lies there too."""
    logs = run.resolve().parents[1]
    return "" if logs == ROOT / "logs" or logs in ROOT.parents else f" --logs {shlex.quote(str(logs))}"
