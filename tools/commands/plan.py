"""Predict memory and time of runs before they are queued; with --check, show how wrong that was for measured runs."""

import argparse
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tools import plots
from tools.errors import InputError, NoRunsError
from tools.logs.run import Run
from tools.logs.runs import find_runs
from tools.plan import accuracy, beside_measured, constants, cost, first_choice, projection, ranking, simulate
from tools.plan.gpus import GPUS, at_hand, named
from tools.plan.predict import TITLES, Prediction, markdown
from tools.plan.ranking import Question, rank
from tools.plan.submitted_lines import NOT_SIMULATED, predictions_of, workload_of
from tools.plan.workload import SOCKETS_GB_PER_S
from tools.submit.submissions import Submission, every_list, exercise_files, read, read_argument, shell_notes
from tools.tables.repository import ROOT
from workshop.run_folder.plural import counted

_REFERENCE = ROOT / "logs" / "reference"
DEFAULT, MEASURED = "h100-80gb", "h200"
_DEFAULTS = {
    **{"what": [], "gpus": 1, "nodes": 1, "length": 512, "batch": 16, "rung": "", "tokens": 0, "format": "text"},
    **dict.fromkeys(("total", "check", "fit", "published", "plain"), False),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        f"{parser.prog} EXERCISE | --list FILE | 'LINE' | --model NAME [--project TOKENS] | --check [LOGS] [options]"
    )
    parser.add_argument(
        "what",
        nargs="*",
        metavar="EXERCISE or LINE",
        help="a line as `submit` takes it, in quotes; all: every exercise",
    )
    parser.add_argument("--list", type=Path, metavar="FILE", help="a list of runs")
    parser.add_argument("--gpu", metavar="TYPE", help=f"{', '.join(GPUS)}; default: this machine's, else {DEFAULT}")
    parser.add_argument(
        "--node-memory", type=float, metavar="GIB", help="CPU memory of a node; default: as NVIDIA's server has it"
    )
    parser.add_argument("--total", action="store_true", help="only the runs' number, time and GPU-hours by exercise")
    parser.add_argument("--check", action="store_true", help="predict the runs in LOGS (default: logs/reference)")
    parser.add_argument(
        "--against", type=Path, metavar="FILE.json", help="the same predictions, kept before the runs in LOGS were made"
    )
    parser.add_argument("--fit", action="store_true", help="write constants.json and steps.json anew")
    question = parser.add_argument_group("which strategy", "instead of lines: --model NAME --gpus N, best first")
    question.add_argument("--model", metavar="NAME", help="one of workshop/shapes/*.json, as bloom-7b1")
    question.add_argument("--gpus", type=int, metavar="N", help="of all nodes; default: 1")
    question.add_argument("--nodes", type=int, metavar="M", help="default: 1")
    question.add_argument("--length", type=int, metavar="TOKENS", help="of a row; default: 512; layouts from 4,097 on")
    question.add_argument("--batch", type=int, metavar="ROWS", help="per GPU and step; default: 16")
    question.add_argument(
        "--tokens", type=float, help=f"of the whole work, as 1e9; default: {ranking.ROWS_PER_GPU:,} rows on each GPU"
    )
    question.add_argument("--rung", help="of the speed ladder, as 11_labelled; default: the textbook")
    question.add_argument(
        "--fabric",
        type=float,
        metavar="GB/S",
        help=f"between nodes, measured or promised; default: {SOCKETS_GB_PER_S:g}, TCP sockets as measured; "
        f"--project: {projection.FABRIC_GB_PER_S:g} per node",
    )
    more = parser.add_argument_group("at scale", "8 to 16,384 GPUs with FSDP: --model NAME --project TOKENS")
    more.add_argument("--project", type=float, metavar="TOKENS", help="how long and how many GPU-hours, as 1e12")
    more.add_argument("--price", type=float, metavar="DOLLARS", help="of a GPU-hour")
    more.add_argument("--published", action="store_true", help="the projection beside other projects' tables")
    parser.add_argument("--format", choices=("text", "json"))
    parser.add_argument("--plain", action="store_true", help="of --check only the errors by exercise")
    parser.add_argument("--output", type=Path, metavar="FILE.png", help="a plot, of --check or --project")
    parser.set_defaults(**_DEFAULTS)


def run(arguments: argparse.Namespace) -> int:
    options = {*_WAYS, *" ".join(read for _, read in _WAYS.values()).split()}
    given = [name for name in sorted(options) if getattr(arguments, name) not in (None, _DEFAULTS.get(name))]
    way = next(way for way in _WAYS if way in given or way == "what")
    answer, read_by_it = _WAYS[way]
    for name in given:
        if name not in (way, *read_by_it.split()):
            readers = [_option(other) for other, (_, read) in _WAYS.items() if name in read.split()]
            beside = f"; expected only beside {' or '.join(readers)}" if readers else ""
            raise InputError(f"plan: {_option(name)} changes nothing beside {_option(way)}{beside}")
    if arguments.output:
        plots.check_output(arguments.output)
    arguments.gpu = arguments.gpu or at_hand() or DEFAULT
    print(answer(arguments))
    return 0


def _option(name: str) -> str:
    return "an exercise, a line or a folder" if name == "what" else f"--{name.replace('_', '-')}"


# ---- lines of an exercise, of a list, or typed ----


def _lines(arguments: argparse.Namespace) -> str:
    submissions = _submissions(arguments)
    gpu = named(arguments.gpu, arguments.node_memory)
    rows = list(zip(submissions, simulate.without_errors(predictions_of(submissions, gpu)), strict=True))
    if arguments.format == "json":
        runs = [_as_json(line, prediction) for line, prediction in rows if prediction]
        return json.dumps({"gpu": arguments.gpu, "runs": runs}, indent=2)
    titles = ["run", *TITLES, "steps per epoch", "limited by", arguments.gpu]
    cells = [[f"{line.exercise.name}: {line.short}", *_cells(prediction)] for line, prediction in rows]
    text = [markdown(titles, cells)]
    found = [prediction for _, prediction in rows if prediction]
    if len(found) > 1:
        hours = sum(one.ranges["gpu_hours"].expected for one in found)
        kwh = hours * gpu.tdp_w / 1000
        text.append(f"\n{len(found)} runs: {hours:,.1f} GPU-hours in all, at most {kwh:,.1f} kWh of the GPUs alone")
    if arguments.gpu != MEASURED:
        text.append(f"note: {arguments.gpu} by its data sheet; nearly all measured runs are of {MEASURED}")
    if any(one.parts.decided_by == "host" for one in found):
        text.append(
            "note: limited by the host, which launches the kernels: CPUs differ by up to 2 times, see the interval"
        )
    return "\n".join(text)


def _cells(found: Prediction | None) -> list[str]:
    if not found:
        return [*["-"] * (len(TITLES) + 2), f"not planned: {NOT_SIMULATED}"]
    return [*found.cells, f"{found.workload.steps_per_epoch:,}", found.parts.decided_by, found.reason]


def _submissions(arguments: argparse.Namespace) -> list[Submission]:
    if bool(arguments.list) == bool(arguments.what):
        also = ", and not both" if arguments.list else ""
        raise InputError(f"plan: expected an exercise, a line in quotes, or --list FILE{also}")
    found = read(arguments.list, os.environ) if arguments.list else []
    for what in arguments.what:
        if ".slurm" in what:  # a launcher with its exercise's folder, as in a list of runs
            found.append(read_argument(what, os.environ))
        else:
            files = exercise_files([] if what == "all" else [what])
            found += [line for file in files for line in read(file, os.environ)]
    if notes := shell_notes(found, os.environ):
        print("\n".join(notes), file=sys.stderr)
    # An exercise that is asked for twice, as in `all fsdp`, has its runs once.
    return list({(line.file, line.line, line.written): line for line in found}.values())


def _as_json(line: Submission, prediction: Prediction) -> dict[str, Any]:
    return {
        "run": f"{line.exercise.name}: {line.short}",
        **prediction.figures,
        "optimizer_steps": prediction.workload.steps,
        "steps_per_epoch": prediction.workload.steps_per_epoch,
        "terms_mib": {name: round(size, 1) for name, size in prediction.terms.items()},
        "step_parts_s": {name: float(f"{value:.4g}") for name, value in vars(prediction.parts).items()},
        "limited_by": prediction.parts.decided_by,
        "verdict": prediction.verdict,
    }


# ---- a model ----


def _question(arguments: argparse.Namespace, gpus: int) -> Question:
    folder = Path(arguments.model).absolute()  # or a name, with or without its owner on the hub
    return Question(
        str(folder) if (folder / "config.json").is_file() else folder.name.lower(),
        *(gpus, arguments.nodes, arguments.gpu, arguments.length, arguments.batch, arguments.rung),
        arguments.fabric if arguments.fabric is not None else SOCKETS_GB_PER_S,
        arguments.tokens,
        arguments.node_memory,
    )


def _ranked(arguments: argparse.Namespace) -> str:
    if arguments.fabric is not None and arguments.nodes == 1:
        raise InputError("plan: --fabric changes nothing on one node; expected --nodes 2 or more")
    question = _question(arguments, arguments.gpus)
    ranked = rank(question)
    if arguments.format == "json":
        return json.dumps(ranking.as_json(question, ranked), indent=2)
    return ranking.text(question, ranked)


def _projected(arguments: argparse.Namespace) -> str:
    if not arguments.model or not 0 < arguments.project < float("inf") or not (arguments.price or 0) >= 0:
        raise InputError("plan --project: expected --model NAME, more than 0 tokens and no negative price")
    question = _question(arguments, named(arguments.gpu).per_node)
    question.check()
    fabric_gb_per_s = arguments.fabric or projection.FABRIC_GB_PER_S
    shape = projection.shape(question.model, question.length, question.batch, question.precision)
    found = projection.project(shape, arguments.gpu, fabric_gb_per_s)
    if arguments.output:
        projection.draw(found, arguments.output)
    rows = f"{counted(question.batch, 'row')} of {question.length} tokens"
    first = f"{question.model} on {arguments.gpu}, {rows} per GPU and step.\n"
    return first + projection.text(found, fabric_gb_per_s, arguments.project, arguments.price)


# ---- beside what was measured ----


def _runs(arguments: argparse.Namespace) -> list[Run]:
    return find_runs(*([Path(folder) for folder in arguments.what] or sorted(_REFERENCE.glob("*/"))))


def _check(arguments: argparse.Namespace) -> str:
    runs = _runs(arguments)
    found = accuracy.cases(runs)
    if not found:
        raise NoRunsError(f"{', '.join(arguments.what) or _REFERENCE}: no run with measured GPU memory")
    if arguments.output:
        beside_measured.draw(found, arguments.output)
    chosen = first_choice.comparisons(found)
    tables = [] if arguments.plain else [beside_measured.configurations(found), first_choice.table(chosen)]
    tables += [beside_measured.out_of_memory(found)] + [first_choice.sentence(chosen)] * bool(chosen)
    tables.append(beside_measured.summary(found))
    if arguments.output:
        tables.append(f"![Predicted over measured]({arguments.output.name})")
    return "\n\n".join(tables)


def _fit(arguments: argparse.Namespace) -> str:
    runs = _runs(arguments)
    lines = [line for file in every_list() for line in read(file, {})]
    planned = [workload.shape for line in lines if (workload := workload_of(line))]
    simulate.keep([*planned, *accuracy.shapes(runs), *projection.published_shapes()])
    constants.save(accuracy.fit(runs))
    return f"wrote {simulate.FILE} and {constants.FILE}"


# What can be asked, by the option that asks for it, the first that is given; its function, and the options it reads.
_WAYS: dict[str, tuple[Callable[[argparse.Namespace], str], str]] = {
    "fit": (_fit, "what"),
    "against": (lambda asked: beside_measured.kept_table(asked.against, _runs(asked)), "what"),
    "check": (_check, "what plain output"),
    "published": (lambda _: projection.published_table(), ""),
    "project": (_projected, "model gpu length batch fabric price output"),
    "model": (_ranked, "gpu gpus nodes length batch rung fabric tokens node_memory format"),
    "total": (lambda asked: cost.table(_submissions(asked), named(asked.gpu)), "what list gpu"),
    "what": (_lines, "list gpu node_memory format"),
}
