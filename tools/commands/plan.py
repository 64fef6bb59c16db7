"""Predict memory and time of runs before they are queued; with --check, show how wrong that was for measured runs."""

import argparse
import json
import os
from pathlib import Path
from typing import Any

from evidence.counted import counted
from tools.errors import InputError, NoRunsError
from tools.logs.run import Run
from tools.logs.runs import find_runs
from tools.plan import (
    choices,
    constants,
    cost,
    error_tables,
    evaluate,
    kept_predictions,
    projection,
    ranking,
    simulate,
)
from tools.plan.gpus import GPUS, at_hand, named
from tools.plan.lines import check_node, workload_of
from tools.plan.predict import Prediction, Range, predict
from tools.plan.ranking import Question, rank
from tools.plan.workload import SOCKETS_GB_PER_S
from tools.submit.submissions import Submission, every_list, exercise_files, read, read_argument
from tools.tables import drawing
from tools.tables.repository import ROOT

_REFERENCE = ROOT / "logs" / "reference"
DEFAULT, MEASURED = "h100-80gb", "h200"
_OF_MODEL = {"gpus": 1, "nodes": 1, "length": 512, "batch": 16, "rung": "", "fabric": None}
# What can be asked, the first that fits, and which options each reads.
_WAYS = {
    "--fit": "what",
    "--against": "what",
    "--check --format json": "what format",
    "--check": "what plain output",
    "--published": "",
    "--project": "model gpu length batch fabric price output",
    "--model": "gpu gpus nodes length batch rung fabric format",
    "--total": "what list gpu",
    "an exercise, a line or --list": "what list gpu format",
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
    question.add_argument("--length", type=int, metavar="TOKENS", help="of a row; default: 512")
    question.add_argument("--batch", type=int, metavar="ROWS", help="per GPU and step; default: 16")
    question.add_argument("--rung", help="of the speed ladder, as 11_labelled; default: the textbook")
    question.add_argument(
        "--fabric",
        type=float,
        metavar="GB/S",
        help=f"between nodes, measured or promised; default: {SOCKETS_GB_PER_S:g}, TCP sockets as measured; "
        f"--project: {projection.Assumptions.fabric_gb_per_s:g} per node",
    )
    more = parser.add_argument_group("at scale", "8 to 16,384 GPUs with FSDP: --model NAME --project TOKENS")
    more.add_argument("--project", type=float, metavar="TOKENS", help="how long and how many GPU-hours, as 1e12")
    more.add_argument("--price", type=float, metavar="DOLLARS", help="of a GPU-hour")
    more.add_argument("--published", action="store_true", help="the projection beside other projects' tables")
    parser.set_defaults(**_OF_MODEL)
    parser.add_argument("--format", choices=("text", "json"), default="text")
    parser.add_argument("--plain", action="store_true", help="of --check only the errors by exercise")
    parser.add_argument("--output", type=Path, metavar="FILE.png", help="a plot, of --check or --project")


def run(arguments: argparse.Namespace) -> int:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    _refuse_unused(arguments, parser.parse_args([]))
    if arguments.output:
        drawing.check_output(arguments.output)
    if arguments.against:
        print(kept_predictions.table(arguments.against, find_runs(*map(Path, arguments.what or _REFERENCE.glob("*/")))))
        return 0
    if arguments.check or arguments.fit:
        return _check(arguments)
    if arguments.published:
        print(projection.published_table())
        return 0
    name = arguments.gpu or at_hand() or DEFAULT
    if arguments.project is not None:
        return _project(arguments, name)
    if arguments.model:
        return _rank(arguments, name)
    gpu = named(name)
    submissions = _submissions(arguments)
    if arguments.total:
        print(cost.table(submissions, gpu))
        return 0
    for line in submissions:
        check_node(line, gpu)
    planned = [(line, workload_of(line)) for line in submissions]
    predictions = iter(predict([workload for _, workload in planned if workload], gpu))
    rows = [(line, next(predictions) if workload else None) for line, workload in planned]
    if arguments.format == "json":
        runs = [_as_json(line, prediction) for line, prediction in rows if prediction]
        print(json.dumps({"gpu": name, "runs": runs}, indent=2))
        return 0
    titles = "allocated (MiB)", "nvidia-smi (MiB)", "CPU (GiB)", "step (ms)", "tokens/s", "job (min)", "GPU-hours"
    print(f"| run | {' | '.join(titles)} | limited by | {name} |\n|---|{'---|' * (len(titles) + 2)}")
    for line, prediction in rows:
        run_name = f"{line.exercise.name}: {line.short}"
        if prediction is None:
            print(f"| {run_name} | {'- | ' * (len(titles) + 1)}not planned: starts no training that is simulated |")
            continue
        found = prediction.ranges
        cells = [
            _cell(found["peak_allocated_mib"]),
            _cell(found["nvidia_smi_mib"]),
            _cell(found["cpu_mib"].times(1 / 1024)),
            _cell(found["step_time_s"].times(1000)),
            _cell(found["tokens_per_second"]),
            _cell(found["total_runtime_s"].times(1 / 60), 1),
            _cell(found["gpu_hours"], 2),
        ]
        print(f"| {run_name} | {' | '.join(cells)} | {prediction.time.parts.decided_by} | {prediction.verdict} |")
    hours = [prediction.ranges["gpu_hours"] for _, prediction in rows if prediction]
    if len(hours) > 1:
        print(f"\n{len(hours)} runs: {sum(one.expected for one in hours):,.1f} GPU-hours in all")
    if name != MEASURED:
        print(f"note: {name} by its data sheet; nearly all measured runs are of {MEASURED}")
    if any(prediction and prediction.time.parts.decided_by == "host" for _, prediction in rows):
        print("note: limited by the host, which launches the kernels: CPUs differ by up to 2 times, see the interval")
    return 0


def _refuse_unused(arguments: argparse.Namespace, defaults: argparse.Namespace) -> None:
    """Raises InputError for an option that would change nothing, as --gpus beside an exercise."""
    given = {name: value for name, value in vars(arguments).items() if value != getattr(defaults, name, value)}
    way = next(way for way in _WAYS if _is_asked(way, arguments))
    read_by_it = {*_WAYS[way].split(), *(word.removeprefix("--") for word in way.split())}
    for name, value in given.items():
        if name not in read_by_it:
            option = "an exercise, a line or a folder" if name == "what" else f"--{name}"
            if name != "what" and value is not True:
                option += f" {value}"
            readers = [other for other, options in _WAYS.items() if name in options.split()]
            beside = f"; expected only beside {' or '.join(readers)}" if readers else ""
            raise InputError(f"plan: {option} changes nothing beside {way}{beside}")
    if arguments.fabric is not None and way == "--model" and arguments.nodes == 1:
        raise InputError(f"plan: --fabric {arguments.fabric:g} changes nothing on one node; expected --nodes 2 or more")


def _is_asked(way: str, arguments: argparse.Namespace) -> bool:
    option, *rest = way.split()
    if not option.startswith("--"):
        return True
    value = getattr(arguments, option.removeprefix("--"))
    return value is not None and value is not False and (not rest or arguments.format == rest[1])


def _rank(arguments: argparse.Namespace, gpu_name: str) -> int:
    named(gpu_name)
    question = Question(
        arguments.model.rstrip("/").rsplit("/", 1)[-1].lower(),
        *(arguments.gpus, arguments.nodes, gpu_name, arguments.length, arguments.batch, arguments.rung),
        arguments.fabric if arguments.fabric is not None else SOCKETS_GB_PER_S,
    )
    ranked = rank(question)
    answer = ranking.as_json(question, ranked) if arguments.format == "json" else ranking.text(question, ranked)
    print(json.dumps(answer, indent=2) if isinstance(answer, dict) else answer)
    return 0


def _project(arguments: argparse.Namespace, gpu_name: str) -> int:
    if not arguments.model or not 0 < arguments.project < float("inf") or not (arguments.price or 0) >= 0:
        raise InputError("plan --project: expected --model NAME, more than 0 tokens and no negative price")
    named(gpu_name)
    question = Question(
        arguments.model.lower(), GPUS[gpu_name].per_node, 1, gpu_name, arguments.length, arguments.batch
    )
    question.check()
    assumed = projection.Assumptions()
    if arguments.fabric is not None:
        if not arguments.fabric > 0:  # nor what is no number
            raise InputError(f"--fabric {arguments.fabric:g}: expected more than 0 GB/s")
        assumed = projection.Assumptions(arguments.fabric)
    shape = projection.shape(question.model, question.length, question.batch, question.precision)
    found = projection.project(shape, gpu_name, assumed)
    if arguments.output:
        projection.draw(found, arguments.output)
    rows = f"{counted(question.batch, 'row')} of {question.length} tokens"
    print(f"{question.model} on {gpu_name}, {rows} per GPU and step.")
    print(projection.text(found, assumed, arguments.project, arguments.price))
    return 0


def _submissions(arguments: argparse.Namespace) -> list[Submission]:
    if bool(arguments.list) == bool(arguments.what):
        also = ", and not both" if arguments.list else ""
        raise InputError(f"plan: expected an exercise, a line in quotes, or --list FILE{also}")
    if arguments.list:
        return read(arguments.list, os.environ)
    found = []
    for what in arguments.what:
        if what == "all":
            found += [line for file in exercise_files([]) for line in read(file, os.environ)]
        elif ".slurm" in what:  # a launcher with its exercise's folder, as in a list of runs
            found.append(read_argument(what, os.environ))
        else:
            found += [line for file in exercise_files([what]) for line in read(file, os.environ)]
    # An exercise that is asked for twice, as in `all fsdp`, has its runs once.
    return list({(line.file, line.line, line.written): line for line in found}.values())


def _cell(found: Range, decimals: int = 0) -> str:
    least, expected, largest = (f"{value:,.{decimals}f}" for value in (found.least, found.expected, found.largest))
    return f"{expected} ({least} to {largest})"


def _as_json(line: Submission, prediction: Prediction) -> dict[str, Any]:
    figures = {
        name: {key: float(f"{value:.6g}") for key, value in vars(found).items()}
        for name, found in prediction.ranges.items()
    }
    parts = {name: float(f"{value:.4g}") for name, value in vars(prediction.time.parts).items()}
    return {
        "run": f"{line.exercise.name}: {line.short}",
        **figures,
        "optimizer_steps": prediction.time.steps,
        "terms_mib": {name: round(size, 1) for name, size in prediction.memory.terms.items()},
        "step_parts_s": parts,
        "limited_by": prediction.time.parts.decided_by,
        "verdict": prediction.verdict,
    }


def _check(arguments: argparse.Namespace) -> int:
    folders = [Path(folder) for folder in arguments.what] or sorted(_REFERENCE.glob("*/"))
    runs = find_runs(*folders)
    if arguments.fit:
        return _fit(runs)
    found = evaluate.cases(runs)
    if not found:
        raise NoRunsError(f"{', '.join(map(str, folders))}: no run with measured GPU memory")
    summary = evaluate.families(found)
    if arguments.format == "json":
        print(json.dumps({"families": summary}, indent=2))
        return 0
    if arguments.plain:
        print(_errors(found, arguments.output))
        return 0
    print(error_tables.configurations(found))
    print(f"\n{choices.table(choices.choices(found))}")
    print(f"\n{_errors(found, arguments.output)}")
    return 0


def _errors(found: list[evaluate.Case], output: Path | None) -> str:
    """By family; with the plot, a link to it."""
    chosen = choices.choices(found)
    parts = [error_tables.summary(found), error_tables.out_of_memory(found), *[choices.sentence(chosen)] * bool(chosen)]
    if output:
        error_tables.draw(found, output)
        parts.append(f"![Predicted over measured]({output.name})")
    return "\n\n".join(parts)


def _fit(runs: list[Run]) -> int:
    lines = [line for file in every_list() for line in read(file, {})]
    planned = [workload.shape for line in lines if (workload := workload_of(line))]
    simulate.keep([*planned, *evaluate.shapes(runs), *(one.shape for one in projection.PUBLISHED)])
    constants.save(evaluate.fit(runs))
    print(f"wrote {simulate.FILE} and {constants.FILE}")
    return 0
