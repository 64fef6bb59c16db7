"""Predict the GPU memory of runs before they are queued; with --check, show how wrong that was for measured runs."""

import argparse
import json
import os
from pathlib import Path
from typing import Any

from tools.errors import InputError, NoRunsError
from tools.logs.runs import find_runs, measure_all
from tools.plan import evaluate, overhead
from tools.plan.gpus import MEMORY_MIB
from tools.plan.lines import workload_of
from tools.plan.predict import Memory, Range, predict
from tools.submit.submissions import Submission, exercise_files, read, read_lines
from tools.tables.repository import ROOT

_REFERENCE = ROOT / "logs" / "reference"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = f"{parser.prog} EXERCISE | --list FILE | 'LINE' | --check [LOGS] [options]"
    parser.add_argument("what", nargs="*", metavar="EXERCISE or LINE", help="a line as `submit` takes it, in quotes")
    parser.add_argument("--list", type=Path, metavar="FILE", help="a list of runs")
    parser.add_argument("--gpu", choices=MEMORY_MIB, help="default: h100-80gb; with --check h200, the reference runs'")
    parser.add_argument("--check", action="store_true", help="predict the runs in LOGS (default: logs/reference)")
    parser.add_argument("--fit", action="store_true", help="write tools/plan/overhead.json anew from logs/reference")
    parser.add_argument("--format", choices=("text", "json"), default="text")


def run(arguments: argparse.Namespace) -> int:
    arguments.gpu = arguments.gpu or ("h200" if arguments.check else "h100-80gb")
    if arguments.check or arguments.fit:
        return _check(arguments)
    submissions = _submissions(arguments)
    planned = [(line, workload_of(line)) for line in submissions]
    memories = iter(predict([workload for _, workload in planned if workload]))
    rows = [(line, next(memories) if workload else None) for line, workload in planned]
    if arguments.format == "json":
        runs = [_as_json(line, memory, arguments.gpu) for line, memory in rows if memory]
        print(json.dumps({"gpu": arguments.gpu, "runs": runs}, indent=2))
        return 0
    print(f"| run | allocated (MiB) | reserved (MiB) | nvidia-smi (MiB) | {arguments.gpu} |\n|---|---|---|---|---|")
    for line, memory in rows:
        name = f"{line.exercise.name}: {line.short}"
        if memory is None:
            print(f"| {name} | - | - | - | not planned: starts no train.py |")
            continue
        cells = " | ".join(map(_cell, memory.ranges.values()))
        print(f"| {name} | {cells} | {memory.verdict(arguments.gpu)} |")
    return 0


def _submissions(arguments: argparse.Namespace) -> list[Submission]:
    if bool(arguments.list) == bool(arguments.what):
        raise InputError("plan: expected an exercise, a line in quotes, or --list FILE")
    if arguments.list:
        return read(arguments.list, os.environ)
    found = []
    for what in arguments.what:
        if ".slurm" in what:  # a launcher with its exercise's folder, as in a list of runs
            found += read_lines(ROOT / "LINE", [what], os.environ)
        else:
            found += [line for file in exercise_files([what]) for line in read(file, os.environ)]
    return found


def _cell(found: Range) -> str:
    return f"{found.expected:,.0f} ({found.least:,.0f} to {found.largest:,.0f})"


def _as_json(line: Submission, memory: Memory, gpu: str) -> dict[str, Any]:
    figures = {name: {key: round(value) for key, value in vars(found).items()} for name, found in memory.ranges.items()}
    terms = {name: round(size, 1) for name, size in memory.terms.items()}
    return {
        "run": f"{line.exercise.name}: {line.short}",
        **figures,
        "terms_mib": terms,
        "verdict": memory.verdict(gpu),
    }


def _check(arguments: argparse.Namespace) -> int:
    folders = [Path(folder) for folder in arguments.what] or sorted(_REFERENCE.glob("*/"))
    runs = find_runs(*folders)
    measure_all([run for run in runs if run.state == "completed"])
    found = evaluate.cases(runs)
    if not found:
        raise NoRunsError(f"{', '.join(map(str, folders))}: no run with measured GPU memory")
    if arguments.fit:
        overhead.save(evaluate.fit(found))
        print(f"wrote {overhead.FILE}")
        return 0
    summary = evaluate.families(found)
    if arguments.format == "json":
        print(json.dumps({"families": summary}, indent=2))
        return 0
    print("| family | configuration | predicted (MiB) | measured (MiB) | error (%) |\n|---|---|---|---|---|")
    for case in sorted(found, key=lambda case: case.family):
        measured = case.measured.get("peak_allocated_mib")
        shown = (
            "OOM | " + case.predicted.verdict(arguments.gpu)
            if measured is None
            else (f"{measured:,.0f} | {case.errors_percent['peak_allocated_mib']:+.1f}")
        )
        facts = case.runs[0].facts
        words = (facts["rung"] or facts["config"], facts["model"], f"x{facts['world_size']}", facts["precision"])
        name = " ".join(str(word) for word in (*words, f"{facts['batch_size']}x{facts['grad_acc']}") if word)
        print(f"| {case.family} | {name} | {case.predicted.allocated.expected:,.0f} | {shown} |")
    print("\n| family | metric | mean error (%) | worst error (%) | runs |\n|---|---|---|---|---|")
    for family, metrics in summary.items():
        for metric, figures in metrics.items():
            print(f"| {family} | {metric} | {' | '.join(map(str, figures.values()))} |")
    return 0
