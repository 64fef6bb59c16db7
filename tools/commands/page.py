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
import sys
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
from tools.commands.watch import look
from tools.errors import InputError, LogError, UnavailableError
from tools.logs.figures import OF_ONE_RUN, measure, text_of, value_of
from tools.logs.run import Run, duration
from tools.logs.runs import REFERENCE, default_logs, find_runs, progress
from tools.plots import charts
from workshop.record.errors import read_plain
from workshop.record.exercises import REPO
from workshop.record.printable import counted, one_line, printable

_PARTS = REPO / "tools" / "page"
_MARK = ".shardlab-page"  # in a folder that this module wrote, and may therefore replace
_LAST_LINES = 25
# Figures in the list of runs; the others are on each run's page.
_LISTED = ("train_loss", "samples_per_second", "peak_gpu_mib")
_FILTERS = ("exercise", "configuration", "model", "state")  # of that list

_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_LONGEST_ID = 80
# Keys of run.json that the page shows in other parts, or that only programs read.
_ELSEWHERE = {"settings", "versions", "command", "trainer_classes", "reason", "note", "git_diff", "version"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_logs_option(parser)
    parser.add_argument(
        "--output",
        type=Path,
        metavar="DIR",
        help="the page's folder, replaced if it is an older page (default: page/ in the logs folder)",
    )


def main(arguments: argparse.Namespace) -> int:
    logs, output = chosen_logs(arguments), arguments.output or default_logs() / "page"
    if not arguments.output:
        default_logs().mkdir(parents=True, exist_ok=True)
    own = chosen_runs(arguments) if arguments.logs or logs[0].is_dir() else []
    made = build(own, find_runs(*sorted(REFERENCE.glob("*/"))), logs, output)
    count = sum(one.own for one in made)
    if not count:
        print(
            f"no runs of yours in {' or '.join(map(str, logs))} yet: the page shows the reference runs", file=sys.stderr
        )
    reference = counted(len(made) - count, "reference run")
    print(f"wrote {output}: {counted(count, 'run')} and {reference}")
    print(f"next: open {output / 'index.html'} in a browser")
    return 0


def build(own: Sequence[Run], reference: Sequence[Run], logs: Sequence[Path], output: Path) -> list[Entry]:
    """Write the page of these runs to the folder `output`, which it replaces if it is an older page.

    Gives one's own runs, what is in trouble first, then the reference runs, the newest first.

    Raises:
        InputError: `output` holds something else, or its parent does not exist.
    """
    if not output.parent.is_dir():
        raise InputError(f"--output {output}: there is no folder {output.parent}")
    if output.exists() and not (output / _MARK).is_file() and (not output.is_dir() or any(output.iterdir())):
        raise InputError(f"--output {output}: is no page made by this command; expected one, or a new folder")
    places = {run.folder.resolve(): run for run in own}  # each once
    own = [run for place, run in places.items() if not place.is_relative_to(REFERENCE)]
    found = entries(own, reference)
    temporary = output.with_name(f"{output.name}.{secrets.token_hex(4)}")
    try:
        for folder in ("runs", "data"):
            (temporary / folder).mkdir(parents=True)
        where = ", ".join(map(str, logs)) if len(logs) < 4 else f"{len(logs)} folders"
        _write(found, where, temporary, output.resolve())
        if output.exists():
            shutil.rmtree(output)
        temporary.rename(output)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return found


def _write(found: Sequence[Entry], where: str, folder: Path, output: Path) -> None:
    """The files in `folder`, which will be `output`: links are relative to that. `where`: one's own runs are."""
    own = [one for one in found if one.own]
    owners = len({one.run.owner for one in own})
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
    pages.globals |= {
        "made": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "counted": counted,
        **{"known_figures": OF_ONE_RUN, "listed_text": listed, "duration": duration},
        "own_states": Counter(one.run.state for one in own),
        **{"own_count": len(own), "reference_count": len(found) - len(own), "owners": owners, "where": where},
    }

    def render(template: str, name: str, **values: Any) -> None:
        text = pages.get_template(template).render(up="../" * name.count("/"), **values)
        (folder / name).write_text(text, "utf-8")

    filters = {key: sorted({value for one in found if (value := one.run.fact(key))}) for key in _FILTERS}
    render("index.html", "index.html", entries=found, listed=_LISTED, filters=filters)
    for one in progress(found, "writing pages"):
        _write_run(one, folder, output, render)


def _write_run(one: Entry, folder: Path, output: Path, render: Any) -> None:
    drawn, run, links = charts(one.run), one.run, _links(one, output / "runs")
    figures, damaged = _figures(run)
    log_shown = run.state != "completed" and "train.out" in links
    render(
        "run.html",
        f"runs/{one.id}.html",
        entry=one,
        facts=_facts(run),
        settings=_settings(run),
        figures=figures,
        damaged=sorted({*damaged, *(chart.problem for chart in drawn if chart.problem)}),
        charts=[chart for chart in drawn if chart.lines],
        last_lines=_last_lines(run.folder / "train.out", _LAST_LINES) if log_shown else [],
        links=links,
    )
    # JSON is JavaScript; only ASCII, so that no character can end a line or a tag.
    data = json.dumps([asdict(chart) for chart in drawn if chart.lines], separators=(",", ":"), allow_nan=False)
    (folder / "data" / f"{one.id}.js").write_text(f"const runCharts={data};\n")


# ---- a run as the page shows it ----


@dataclass(frozen=True)
class Entry:
    """A run and its place in the page.

    Attributes:
        id: file name of its page, without the suffix; of letters, digits, `_` and `-` only.
        own: one of the runs asked for; False: a reference run.
        where: its logs folder, of a reference run the machine's.
        trouble: what is wrong with one's own run, as `watch` says it; "" for nothing.
    """

    id: str
    run: Run
    own: bool
    where: str
    trouble: str = ""

    @property
    def name(self) -> str:
        """What a list calls it: exercise, configuration or rung, fault, folder."""
        run = self.run
        fault = "" if run.fault in (None, "none") else run.fault.replace("_", " ")
        what = [run.record.exercise or run.folder.parent.name, run.configuration, fault]
        return " · ".join(one_line(str(part)) for part in (*what, run.folder.name) if part)


def entries(own: Sequence[Run], reference: Sequence[Run]) -> list[Entry]:
    """One's own runs as `watch` has them, what is in trouble first; then the reference runs, the newest first."""
    taken: set[str] = set()
    live = sorted(map(look, reversed(own)), key=lambda one: one.urgency)
    found = []
    for run, is_own, trouble in [
        *((one.run, True, one.trouble) for one in live),
        *((run, False, "") for run in reversed(reference)),
    ]:
        machine = "" if is_own else run.folder.resolve().relative_to(REFERENCE).parts[0]
        name = f"{machine}-{run.folder.parent.name}-{run.folder.name}".removeprefix("-")
        identity = _unique(re.sub(r"[^A-Za-z0-9_-]+", "-", name)[-_LONGEST_ID:].strip("-") or "run", taken)
        found.append(Entry(identity, run, is_own, machine or str(run.folder.parent.parent), trouble))
    return found


def _unique(name: str, taken: set[str]) -> str:
    """Also where a file system ignores case."""
    number, free = 2, name
    while free.lower() in taken:
        free, number = f"{name}-{number}", number + 1
    taken.add(free.lower())
    return free


def _links(entry: Entry, page_folder: Path) -> dict[str, str]:
    """The run's files, folders left out: name -> where it is, seen from a folder of the page."""
    base = os.path.relpath(entry.run.folder.resolve(), page_folder)
    return {name: quote(os.fsencode(f"{base}/{name}")) for name in entry.run.files}


def _figures(run: Run) -> tuple[dict[str, str], list[str]]:
    """Every figure that the run has, name to text; and what is wrong in which line of the logs that cost figures."""
    found, damaged = {}, []
    for name, one in OF_ONE_RUN.items():
        try:
            found[name] = one.written(measure(run, name))
        except UnavailableError:
            continue
        except LogError as error:
            damaged.append(str(error))
    return found, damaged


def listed(run: Run, name: str) -> str:
    """A figure in the list of runs; PyTorch's peak where nvidia-smi left no log."""
    if run.state != "completed":
        return ""
    own, allocated = value_of(run, name), value_of(run, "peak_allocated_mib")
    if name == "peak_gpu_mib" and own is None and allocated is not None:
        return f"{OF_ONE_RUN[name].written(allocated)} (PyTorch)"
    return text_of(run, name)


def _last_lines(path: Path, count: int) -> list[str]:
    """A log's last whole lines as a terminal shows them: of a progress bar its last state, no control codes.

    None of a file that cannot be read.
    """
    try:
        lines = read_plain(path).decode(errors="replace").split("\n")
    except LogError:
        return []
    lines = [line.rstrip("\r").rpartition("\r")[2] for line in lines if line.strip()]
    return [printable(_COLOUR.sub("", line)) for line in lines[-count:]]


def _settings(run: Run) -> dict[str, str]:
    """What the run was asked for, and with which versions it ran, as text."""
    found = run.settings | {f"version of {name}": version for name, version in run.record.versions.items()}
    return {one_line(str(name)): _as_text(value) for name, value in found.items()}


def _facts(run: Run) -> dict[str, str]:
    """What ran, where and how it ended: what run.json says in a word or a number, and what follows from it."""
    record, runtime = run.record, run.runtime_s
    found = {name.replace("_", " "): value for name, value in vars(record).items() if name not in _ELSEWHERE}
    found |= {
        "model": record.model.name or run.model,
        "sharding": run.method,  # as observed
        "gpu names": ", ".join(sorted(set(record.gpu_names))),
        "attempts": "; ".join(text for _, text in run.resumptions),
        "owner of the folder": run.owner,
        "runtime": "" if runtime is None else duration(runtime),
    }
    return {name: _as_text(value) for name, value in found.items() if value is not False and _as_text(value)}


def _as_text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else one_line(str(value))
