"""Predict memory and time of runs before they are queued; with `check`, show how wrong that was for measured runs."""

import argparse
import json
import os
import re
import sys
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

from tools.commands import choice, room
from tools.errors import InputError, NoRunsError
from tools.logs.run import Run
from tools.logs.runs import REFERENCE, find_runs
from tools.plan import accuracy, answer, constants, measured, simulate
from tools.plan.candidates import ROWS_PER_GPU, Question
from tools.plan.gpus import DEFAULT, GPUS, at_hand, named
from tools.plan.predict import MEASURED_LENGTH, Prediction
from tools.plan.ranking import rank, shapes_to_keep
from tools.plan.submitted_lines import MUST_DO, NOT_SIMULATED, cost_table, job_time, predictions_of, shapes_of
from tools.plan.workload import SOCKETS_GB_PER_S
from tools.plan.workload_of import hub_names
from tools.submit.submissions import Submission, every_list, exercise_files, read_argument, read_list, shell_notes
from tools.tables.markdown import markdown
from workshop.settings.model_file import SHAPES, base_name, short_name

# Of the table of lines: title, figure, factor from the figure's unit, decimals.
_COLUMNS = (
    ("allocated (MiB)", "peak_allocated_mib", 1, 0),
    ("nvidia-smi (MiB)", "nvidia_smi_mib", 1, 0),
    ("CPU per node (GiB)", "cpu_mib", 1 / 1024, 0),
    ("step (ms)", "step_time_s", 1000, 0),
    ("tokens/s", "tokens_per_second", 1, 0),
    ("examples/s", "samples_per_second", 1, 1),
    ("job (min)", "total_runtime_s", 1 / 60, 1),
    ("GPU-hours", "gpu_hours", 1, 2),
)
_SUBCOMMANDS = ("lines", "day", "model", "cards", "check", "fit")


def with_subcommand(words: list[str]) -> list[str]:
    """The words with `lines` first, unless they name a subcommand."""
    # argparse takes a line such as '--nodes=2 fsdp/multi_node.slurm' for an option.
    words = [f" {word}" if re.match(r"-\S+\s.*\.slurm\b", word) else word for word in words]
    if words and re.fullmatch(r"day-\d", words[0]):
        return ["day", *words]
    return words if words and words[0] in (*_SUBCOMMANDS, "-h", "--help") else ["lines", *words]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parsers = parser.add_subparsers(dest="subcommand", required=True, metavar="SUBCOMMAND")

    def add(name: str, answer: Any, summary: str) -> argparse.ArgumentParser:
        found = parsers.add_parser(name, help=summary, description=summary)
        found.set_defaults(answer=answer)
        return found

    lines = add("lines", _lines, "the runs of exercises, of a list or of lines; `plan fsdp` is `plan lines fsdp`")
    lines.add_argument(
        "what",
        nargs="*",
        metavar="EXERCISE or LINE",
        help="a line as `submit` takes it, in quotes; all: every exercise",
    )
    lines.add_argument("--list", type=Path, metavar="FILE", help="a list of runs")
    total = _add_hardware(lines)
    total.add_argument("--total", action="store_true", help="only the runs' number, time and GPU-hours by exercise")

    day = add("day", _day, "do the must-do runs of a day fit the room? `plan day-1 --groups 7 --gpus 8`")
    day.add_argument("day", metavar="DAY", help="of the timetable in instructor/README.md")
    day.add_argument("--groups", type=int, required=True, metavar="N", help="of three people")
    day.add_argument("--gpus", type=int, required=True, metavar="N", help="of all nodes")
    _add_hardware(day)

    model = add("model", _ranked, "which strategy, best first: `plan model NAME --gpus N`")
    known = "one of workshop/shapes/*.json, as bloom-7b1; a config.json or its folder; a name on the hub"
    model.add_argument("model", metavar="NAME", help=known)
    model.add_argument("--gpus", type=int, default=1, metavar="N", help="of all nodes; default: 1")
    model.add_argument("--nodes", type=int, default=1, metavar="M", help="default: 1")
    long = f"layouts from {MEASURED_LENGTH + 1:,} on"
    model.add_argument("--length", type=int, default=512, metavar="TOKENS", help=f"of a row; default: 512; {long}")
    model.add_argument("--batch", type=int, default=16, metavar="ROWS", help="per GPU and step; default: 16")
    model.add_argument(
        "--largest", action="store_true", help="the largest micro-batch of --batch that fits, in each row"
    )
    packed = "simulate packed rows with the speed ladder's top rung, too: a minute"
    model.add_argument("--packed", action="store_true", help=packed)
    work = f"of the whole work, as 1e9; default: {ROWS_PER_GPU:,} rows on each GPU"
    model.add_argument("--tokens", type=float, default=0, help=work)
    model.add_argument("--method", choices=("full", "lora", "qlora"), default="", help="only this; default: all three")
    own = "a DeepSpeed or FSDP file of your own, as a row"
    model.add_argument("--config", default="", metavar="FILE", dest="config_file", help=own)
    model.add_argument("--all", action="store_true", help="more than ten rows")
    _add_hardware(model, "csv")

    cards = add("cards", _cards, "the cards of choose/; with --key what the planner says of each strategy of the key")
    cards.add_argument("--key", action="store_true")

    check = add("check", _check, "beside what runs measured")
    check.add_argument("logs", nargs="*", type=Path, help="folders of runs; default: logs/reference")
    kept = "instead the predictions in this file, kept before the runs were made"
    check.add_argument("--against", type=Path, metavar="FILE.json", help=kept)

    fit = add("fit", _fit, "write constants.json and the simulated steps anew")
    fit.add_argument("logs", nargs="*", type=Path, help="folders of runs; default: logs/reference")


def _add_hardware(parser: argparse.ArgumentParser, *formats: str) -> Any:
    """Adds the options of a node, and --format; returns its group, for what excludes it."""
    parser.add_argument(
        "--gpu", metavar="TYPE", help=f"{', '.join(GPUS)}, or a FILE.toml; default: this machine's, else {DEFAULT}"
    )
    node = "CPU memory of a node; default: as NVIDIA's server has it"
    parser.add_argument("--node-memory", type=float, metavar="GIB", dest="node_gib", help=node)
    fabric = f"between nodes, measured or promised; default: {SOCKETS_GB_PER_S:g}, TCP sockets as measured"
    parser.add_argument("--fabric", type=float, metavar="GB/S", dest="fabric_gb_per_s", help=fabric)
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--format", choices=("text", "json", *formats), default="text")
    return group


def main(arguments: argparse.Namespace) -> int:
    if "gpu" in arguments:
        arguments.gpu = arguments.gpu or at_hand() or DEFAULT
    print(arguments.answer(arguments))
    return 0


# ---- lines of an exercise, of a list, or typed ----


def _lines(arguments: argparse.Namespace) -> str:
    submissions = _submissions(arguments)
    gpu = named(arguments.gpu, arguments.node_gib)
    fabric_gb_per_s = _fabric(arguments, max(line.count("nodes") for line in submissions))
    if arguments.total:
        return cost_table(submissions, gpu, fabric_gb_per_s)
    rows = list(zip(submissions, predictions_of(submissions, gpu, fabric_gb_per_s), strict=True))
    if arguments.format == "json":
        runs = [_as_json(line, prediction) for line, prediction in rows]
        return json.dumps({"gpu": arguments.gpu, "runs": runs}, indent=2)
    titles = ["run", *(title for title, *_ in _COLUMNS), "steps per epoch", "limited by", arguments.gpu]
    cells = [[f"{line.exercise.name}: {line.short}", *_cells(prediction)] for line, prediction in rows]
    text = [markdown(titles, cells)]
    found = [prediction for _, prediction in rows if prediction]
    if len(found) > 1:
        hours = sum(one.ranges["gpu_hours"].expected for one in found)
        kwh = hours * gpu.tdp_w / 1000
        text.append(f"\n{len(found)} runs: {hours:,.1f} GPU-hours in all, at most {kwh:,.1f} kWh of the GPUs alone")
    if not gpu.measured:
        text.append(f"note: {arguments.gpu} by {gpu.source}; no run of ours measured one")
    if any(one.parts.decided_by == "host" for one in found):
        text.append(
            "note: limited by the host, which launches the kernels: CPUs differ by up to 2 times, see the interval"
        )
    return "\n".join(text)


def _cells(found: Prediction | None) -> list[str]:
    if not found:
        return [*["-"] * (len(_COLUMNS) + 2), f"not planned: {NOT_SIMULATED}"]
    cells = []
    for _, name, factor, decimals in _COLUMNS:
        least, expected, largest = (f"{factor * value:,.{decimals}f}" for value in found.ranges[name])
        cells.append(f"{expected} ({least} to {largest})")
    return [*cells, f"{found.workload.steps_per_epoch:,}", found.parts.decided_by, found.reason]


def _submissions(arguments: argparse.Namespace) -> list[Submission]:
    if bool(arguments.list) == bool(arguments.what):
        also = ", and not both" if arguments.list else ""
        raise InputError(f"plan: expected an exercise, a line in quotes, or --list FILE{also}")
    found = read_list(arguments.list, os.environ) if arguments.list else []
    for what in arguments.what:
        if ".slurm" in what:  # a launcher with its exercise's folder, as in a list of runs
            found.append(read_argument(what, os.environ))
        else:
            files = exercise_files([] if what == "all" else [what])
            found += [line for file in files for line in read_list(file, os.environ)]
    if notes := shell_notes(found, os.environ):
        print("\n".join(notes), file=sys.stderr)
    # An exercise that is asked for twice, as in `all fsdp`, has its runs once.
    return list({(line.file, line.source.number, line.source.written): line for line in found}.values())


def _fabric(arguments: argparse.Namespace, nodes: int) -> float:
    """Return the bandwidth between nodes (GB/s). Raises InputError where it changes nothing, and for what is none."""
    if (given := arguments.fabric_gb_per_s) is None:
        return SOCKETS_GB_PER_S
    if nodes == 1:
        raise InputError("plan: --fabric changes nothing on one node; expected --nodes 2 or more")
    if not given > 0:  # nor what is no number
        raise InputError(f"--fabric {given:g}: expected more than 0 GB/s")
    return given


def _as_json(line: Submission, prediction: Prediction | None) -> dict[str, Any]:
    about = {"run": f"{line.exercise.name}: {line.short}", "place": line.place, "must_do": line.contains(MUST_DO)}
    about["gpus"] = line.count("nodes") * line.count("gpus-per-node")
    if not prediction:
        return about | {"verdict": "not planned", "reason": NOT_SIMULATED}
    return about | prediction.as_json


# ---- a model ----


def _ranked(arguments: argparse.Namespace) -> str:
    given = {one.name: getattr(arguments, one.name, None) for one in fields(Question)} | {
        "model": _model(arguments.model)
    }
    given["asked"] = arguments.model if "/" in arguments.model and not Path(arguments.model).exists() else ""
    given["fabric_gb_per_s"] = _fabric(arguments, arguments.nodes)
    question = Question(**{name: value for name, value in given.items() if value is not None})
    ranked = rank(question)
    if arguments.format == "text":
        return answer.text(question, ranked, arguments.all)
    return (answer.as_json if arguments.format == "json" else answer.as_csv)(question, ranked)


def _model(given: str) -> str:
    """A folder or a file, a shape's name, or a name on the hub, whose config.json is then in the hub's cache."""
    if (path := Path(given).absolute()).exists():
        return str(path.parent if path.name == "config.json" else path)
    name = hub_names().get(base_name(given)) or base_name(short_name(given))
    if name == "tiny" or name in SHAPES or "/" not in given:
        return name
    from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url

    with suppress(Exception):  # no network, no such name, a gate: then only the cache knows it
        get_hf_file_metadata(hf_hub_url(given, "config.json"), timeout=2)  # asks once; the download for half a minute
        hf_hub_download(given, "config.json", etag_timeout=2)
    return given


def _day(arguments: argparse.Namespace) -> str:
    gpu, runs_of = named(arguments.gpu, arguments.node_gib), {}
    for folder in (folder for slot in room.slots(arguments.day) for folder in slot.exercises):
        required = [line for line in read_list(folder / "submit.txt", os.environ) if line.contains(MUST_DO)]
        planned = zip(required, predictions_of(required, gpu, _fabric(arguments, 1)), strict=True)
        times = [(line, taken) for line, found in planned if (taken := job_time(line, found))]
        runs_of[folder.name] = [
            room.Run(line.place.split(":")[-1], line.count("nodes") * line.count("gpus-per-node"), taken)
            for line, taken in times
        ]
    return room.text(arguments.day, room.Room(arguments.groups, arguments.gpus, gpu.per_node), runs_of)


def _cards(arguments: argparse.Namespace) -> str:
    return choice.key_table() if arguments.key else choice.cards_table()


# ---- beside what was measured ----


def _runs(folders: list[Path]) -> list[Run]:
    return find_runs(*(folders or sorted(REFERENCE.glob("*/"))))


def _check(arguments: argparse.Namespace) -> str:
    if arguments.against:
        return accuracy.kept_table(arguments.against, _runs(arguments.logs))
    found = measured.cases(_runs(arguments.logs))
    if not found:
        raise NoRunsError(f"{', '.join(map(str, arguments.logs)) or REFERENCE}: no run with measured GPU memory")
    tables = [accuracy.out_of_memory(found), accuracy.summary(found)]
    if chosen := accuracy.comparisons(found):
        tables.insert(1, accuracy.first_choices(chosen))
    return "\n\n".join(tables)


def _fit(arguments: argparse.Namespace) -> str:
    runs = _runs(arguments.logs)
    lines = [line for file in every_list() for line in read_list(file, {})]
    usual = [shape for name in SHAPES if not name.startswith("tiny") for shape in shapes_to_keep(name)]
    simulate.keep([*shapes_of(lines), *measured.shapes(runs), *usual])
    constants.save(measured.fit(runs))
    return f"wrote {simulate.FILE} and {constants.FILE}"
