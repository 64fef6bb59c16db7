"""Make a page of the runs that a browser opens from disk: their list, and each with its charts.

A page that is opened from disk may not fetch files, but it may load scripts: so the charts' points are scripts, too.
Every text goes through Jinja's escaping or is JSON in a file of its own, and a content security policy lets no script
run that is written into a page.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import secrets
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import distribution
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jinja2

from tools.commands.options import add_logs_option, chosen_logs, chosen_runs
from tools.errors import InputError, LogError, UnavailableError
from tools.logs.figures import OF_ONE_RUN, measure, text_of, value_of
from tools.logs.run import Run, duration
from tools.logs.runs import REFERENCE, default_logs, find_runs, progress
from tools.plots import charts, run_label
from workshop.record.errors import read_plain
from workshop.record.exercises import REPO
from workshop.record.printable import counted, one_line, printable

_PARTS = REPO / "tools" / "page"
_MARK = ".shardlab-page"  # in a folder that this module wrote, and may therefore replace
_LAST_LINES = 25
# Figures in the list of runs; the others are on each run's page.
_LISTED = ("train_loss", "samples_per_second", "peak_gpu_mib")
_TITLES = ("Run", "State", "Whose", "Exercise", "Configuration", "Model", "GPUs", "Runtime")

_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_LONGEST_ID = 80
# Keys of run.json that the page shows in other parts, or that only programs read.
_ELSEWHERE = {"settings", "versions", "command", "trainer_classes", "reason", "note", "git_diff", "version"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_logs_option(parser)


def main(arguments: argparse.Namespace) -> int:
    logs, output = chosen_logs(arguments), default_logs() / "page"
    output.parent.mkdir(parents=True, exist_ok=True)
    folders = {run.folder.resolve(): run for run in chosen_runs(arguments)}  # each once
    own = [run for folder, run in folders.items() if not folder.is_relative_to(REFERENCE)]
    reference = find_runs(*sorted(REFERENCE.glob("*/")))
    build(own, reference, logs, output)
    print(f"wrote {output}: {counted(len(own), 'run')} and {counted(len(reference), 'reference run')}")
    print(f"next: open {output / 'index.html'} in a browser")
    return 0


def build(own: Sequence[Run], reference: Sequence[Run], logs: Sequence[Path], output: Path) -> None:
    """Write the page of these runs to the folder `output`, which it replaces if it is an older page.

    Raises:
        InputError: `output` is something else.
    """
    if output.exists() and not (output / _MARK).is_file():
        raise InputError(f"{output}: is no page made by this command; rename it")
    temporary = output.with_name(f"{output.name}.{secrets.token_hex(4)}")
    try:
        for folder in ("runs", "data"):
            (temporary / folder).mkdir(parents=True)
        states = ", ".join(f"{count} {state}" for state, count in Counter(run.state for run in own).items())
        where = ", ".join(map(str, logs)) if len(logs) < 4 else f"{len(logs)} folders"
        told = f"Own runs: {states or 'none yet'}. {counted(len(reference), 'reference run')}"
        _write(entries(own, reference), {"told": told, "where": where}, temporary, output.resolve())
        if output.exists():
            shutil.rmtree(output)
        temporary.rename(output)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _write(shown: Sequence[Entry], facts: dict[str, str], folder: Path, output: Path) -> None:
    """The files in `folder`, which will be `output`: links are relative to that."""
    (folder / _MARK).touch()
    shutil.copytree(_PARTS / "static", folder / "static")
    plotly = distribution("plotly").locate_file("plotly/package_data/plotly.min.js")
    shutil.copyfile(str(plotly), folder / "static" / "plotly.min.js")
    # Every text that the templates are given is escaped and made harmless.
    pages = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_PARTS / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=lambda value: printable(value) if type(value) is str else value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    pages.globals |= facts | {"made": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"}
    titles = [*_TITLES, *(OF_ONE_RUN[name].title for name in _LISTED)]
    rows = [(entry, _cells(entry)) for entry in shown]
    index = pages.get_template("index.html").render(up="", titles=titles, rows=rows)
    (folder / "index.html").write_text(index, "utf-8")
    for entry in progress(shown, "writing pages"):
        drawn = charts(entry.run)
        curves = [chart for chart in drawn if chart.lines]
        problems = {chart.problem for chart in drawn if chart.problem}
        parts = _parts(entry, problems, output / "runs")
        text = pages.get_template("run.html").render(up="../", charts=curves, **parts)
        (folder / "runs" / f"{entry.id}.html").write_text(text, "utf-8")
        # JSON is JavaScript; only ASCII, so that no character can end a line or a tag.
        data = json.dumps([asdict(chart) for chart in curves], separators=(",", ":"), allow_nan=False)
        (folder / "data" / f"{entry.id}.js").write_text(f"const runCharts={data};\n")


# ---- a run as the page shows it ----


@dataclass(frozen=True)
class Entry:
    """A run and its place in the page.

    Attributes:
        id: file name of its page, without the suffix; of letters, digits, `_` and `-` only.
        whose: the owner of one's own run; of a reference run its machine.
    """

    id: str
    run: Run
    whose: str


def entries(own: Sequence[Run], reference: Sequence[Run]) -> list[Entry]:
    """One's own runs, those in trouble first; then the reference runs. In each the newest first."""
    by_name: dict[str, Entry] = {}
    for run, machine in [
        *((run, "") for run in sorted(own, key=lambda run: (not run.reason, -run.start.timestamp()))),
        *((run, run.folder.resolve().relative_to(REFERENCE).parts[0]) for run in reversed(reference)),
    ]:
        name = f"{machine}-{run.folder.parent.name}-{run.folder.name}".removeprefix("-")
        name = re.sub(r"[^A-Za-z0-9_-]+", "-", name)[-_LONGEST_ID:].strip("-") or "run"
        while name.lower() in by_name:  # a file system may ignore case
            name += "-2"
        by_name[name.lower()] = Entry(name, run, f"reference, {machine}" if machine else run.owner)
    return list(by_name.values())


def _cells(entry: Entry) -> list[tuple[str, str]]:
    """The run's line in the list, below the titles after the first: a text, and a remark or none."""
    run, nodes, runtime = entry.run, entry.run.record.nodes or 1, entry.run.runtime_s
    gpus = "none" if run.record.device == "cpu" else str(run.world_size or "")
    return [
        (run.state, run.reason),
        (entry.whose, ""),
        (run.record.exercise, ""),
        (run.configuration, f"fault: {run.fault}" if run.fault else ""),
        (run.model or "", "random weights" if run.settings.get("model_init") == "random" else ""),
        (gpus, f"{nodes} nodes" if nodes > 1 else ""),
        ("" if runtime is None else duration(runtime), ""),
        *((listed(run, name), "") for name in _LISTED),
    ]


def listed(run: Run, name: str) -> str:
    """A figure in the list of runs; PyTorch's peak where nvidia-smi left no log."""
    if run.state != "completed":
        return ""
    logged, allocated = value_of(run, name), value_of(run, "peak_allocated_mib")
    if name == "peak_gpu_mib" and logged is None and allocated is not None:
        return f"{OF_ONE_RUN[name].written(allocated)} (PyTorch)"
    return text_of(run, name)


def _parts(entry: Entry, problems: set[str], page_folder: Path) -> dict[str, Any]:
    """The values of run.html beside its charts; links are relative to the page's folder."""
    run, figures = entry.run, {}
    for figure in OF_ONE_RUN.values():
        try:
            figures[figure.title] = figure.written(measure(run, figure.name)), figure.definition
        except UnavailableError:
            continue
        except LogError as error:
            problems.add(str(error))
    settings = run.settings | {f"version of {name}": version for name, version in run.record.versions.items()}
    base = os.path.relpath(run.folder.resolve(), page_folder)
    log_shown = run.state != "completed" and "train.out" in run.files
    return {
        "entry": entry,
        "name": f"{run.record.exercise or run.folder.parent.name}: {run_label(run)}",
        "lists": {"What ran": _texts(_facts(run)), "Figures": figures, "Settings": _texts(settings)},
        "damaged": sorted(problems),
        "last_lines": _last_lines(run.folder / "train.out") if log_shown else [],
        "links": {name: quote(os.fsencode(f"{base}/{name}")) for name in run.files},
    }


def _facts(run: Run) -> dict[str, Any]:
    """Facts from run.json, and facts that follow from it."""
    facts = {name.replace("_", " "): value for name, value in vars(run.record).items() if name not in _ELSEWHERE}
    facts |= {
        "model": run.record.model.name or run.model,
        "sharding": run.method,  # as observed
        "gpu names": ", ".join(sorted(set(run.record.gpu_names))),
        "attempts": "; ".join(text for _, text in run.resumptions),
        "owner of the folder": run.owner,
        "runtime": "" if run.runtime_s is None else duration(run.runtime_s),
    }
    return {name: value for name, value in facts.items() if value}


def _texts(values: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Each value as text, without a definition."""
    return {one_line(str(name)): (one_line(str(value)), "") for name, value in values.items()}


def _last_lines(path: Path) -> list[str]:
    """A log's last lines as a terminal shows them: a bar's last state, no colours; none if it is unreadable."""
    try:
        lines = read_plain(path).decode(errors="replace").split("\n")
    except LogError:
        return []
    lines = [line.rstrip("\r").rpartition("\r")[2] for line in lines if line.strip()]
    return [_COLOUR.sub("", line) for line in lines[-_LAST_LINES:]]
