"""A course on the throw-away SLURM: what everybody submits, what the instructor sees, grades and shows.

    python tests/slurm/course.py                     # 40 participants: about 5 s of one core for each
    python tests/slurm/course.py --people 4

Each participant has a logs folder and submits the baseline, tiny; some runs fail on purpose. Meanwhile `watch` runs in
a terminal, and `watch --once` is asked twice. Then each writes a my_results file (some wrong, some unreadable), and
`grade` and `page` read all folders. The runs belong to users of made-up numbers, which only root can give away.
Prints a Markdown table of durations and CPU time, and exits with 1 if a run does not end as planned.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import io
import itertools
import os
import platform
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(REPO)] if str(REPO) not in sys.path else []

from submitting import Job, submit  # noqa: E402
from throwaway_slurm import ThrowawaySlurm  # noqa: E402

from tools.__main__ import main as tools  # noqa: E402
from tools.logs.runs import find_runs  # noqa: E402

FIRST_USER = 50_001
# The smallest training that fills every row of the tiny tables.
SETTINGS = {"TRAIN_SIZE": "16", "GENERATE_SIZE": "2", "MAX_STEPS": ""}
FAULTS = {  # by the participant's number modulo 20: the state that follows, and what brings it about
    2: ("failed", {"MODEL_NAME": "/no-model", "MODEL_INIT": "pretrained"}),
    5: ("oom", {}),
    8: ("cancelled", {"NUM_EPOCHS": "100000"}),
    11: ("no run", {"BATCHSIZE": "4", "BATCH_SIZE": "four"}),  # refused before there is a run folder
    14: ("timeout", {"NUM_EPOCHS": "100000"}),
    17: ("failed", {"MODEL_NAME": "/no-model", "MODEL_INIT": "pretrained"}),
}
WRONG, UNREADABLE = 3, 6  # by the number modulo 7: my_results with a wrong cell, and one that is no text


@dataclass(frozen=True)
class Person:
    """Attributes: number: from 0; planned: the state of the run; job: its folder is the participant's logs folder."""

    number: int
    planned: str
    job: Job

    @property
    def user(self) -> int:
        return FIRST_USER + self.number

    @property
    def run(self) -> Path | None:
        return next(self.job.folder.glob("baseline/*"), None)

    def take_over(self) -> None:
        """The run folder belongs to its participant."""
        if self.run and self.run.stat().st_uid != self.user:
            os.chown(self.run, self.user, -1)


def submit_all(cluster: ThrowawaySlurm, folder: Path, count: int) -> list[Person]:
    """Everybody's sbatch; people stand in the repository or in the exercise's folder."""
    people = []
    folder.mkdir()
    for number in range(count):
        planned, settings = FAULTS.get(number % 20, ("completed", {}))
        options = f"--mem={'300M' if planned == 'oom' else '2G'} --time=60"
        script, place = ("baseline.slurm", REPO / "baseline") if number % 2 else ("baseline/baseline.slurm", REPO)
        logs = folder / f"person{number:02}"
        job = submit(cluster, logs, script, options=options, cwd=place, **SETTINGS | settings)
        people.append(Person(number, planned, job))
    return people


def logs_options(people: Sequence[Person]) -> list[str]:
    return ["--logs", *(str(person.job.folder) for person in people)]


def write_results(people: Sequence[Person], folder: Path) -> list[Path]:
    """my_results of everybody, from what `fill` prints for them; named after the owner of the runs."""
    folder.mkdir()
    files = []
    for person in people:
        completed = person.run is not None and person.planned == "completed"
        command = ["fill", "baseline", "--tiny", "--plain", "--logs", str(person.job.folder)]
        with contextlib.redirect_stdout(io.StringIO()) as shown, contextlib.redirect_stderr(io.StringIO()):
            tools(command if completed else [*command, "--blank"])
        text = shown.getvalue()
        if completed and person.number % 7 == WRONG:
            text = re.sub(r"(Steps per Epoch \| )(\d+)", r"\g<1>9\2", text)
        files.append(folder / f"{person.user}.md")
        files[-1].write_bytes(b"\x89PNG\r\n\xff\xfe" if person.number % 7 == UNREADABLE else text.encode())
    return files


def verdict(row: dict[str, str]) -> str:
    """What a line of `grade` says of a file: right, wrong, or why there is nothing to say."""
    if row["problem"]:
        return "no run" if "named after no owner" in row["problem"] else "cannot be checked"
    if row["wrong"] != "0":
        return "wrong"
    return "right" if row["right"] != "0" else "not filled in"


def used(command: subprocess.Popen[bytes], start_s: float) -> tuple[float, float]:
    """Wall and CPU time, in seconds, of a command and its children, when it has ended."""
    _, _, usage = os.wait4(command.pid, 0)
    command.returncode = 0
    return time.monotonic() - start_s, usage.ru_utime + usage.ru_stime


def timed(what: str, output: Path, *words: str, environment: dict[str, str] | None = None) -> str:
    """The row of `python -m tools WORDS`, which prints into the file `output`."""
    start_s = time.monotonic()
    with output.open("wb") as file:
        command = [sys.executable, "-m", "tools", *words]
        wall_s, cpu_s = used(subprocess.Popen(command, cwd=REPO, env=environment, stdout=file, stderr=file), start_s)
    return f"| {what} | {wall_s:.1f} | {cpu_s:.1f} |"


def hold(cluster: ThrowawaySlurm, people: Sequence[Person], folder: Path) -> Iterator[str]:
    """Everybody's runs to their end, watched; gives rows of the table of durations."""
    start_s = time.monotonic()
    watch = shlex.join([sys.executable, "-m", "tools", "watch", *logs_options(people)])
    view = subprocess.Popen(
        ["script", "--quiet", "--command", watch, "/dev/null"],  # a terminal of its own; it ends when it gets a `q`
        cwd=REPO,
        env=cluster.env | {"TERM": "xterm-256color"},
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    )
    once = ["watch", "--once", *logs_options(people)]
    halfway, acted = "", set()
    while unfinished := cluster.unfinished():
        for person in people:
            person.take_over()
            if person.run and person.number not in acted and (person.run / "steps.csv").exists():
                acted.add(person.number)
                if person.planned == "cancelled":
                    cluster.cancel(person.job.id)
                elif person.planned == "timeout":
                    cluster.expire(person.job.id)
        if not halfway and 2 * len(unfinished) < len(people):
            halfway = timed("`watch --once` meanwhile", folder / "watch.txt", *once, environment=cluster.env)
        time.sleep(1)
    wall_s = time.monotonic() - start_s
    view.stdin.write(b"q")
    view.stdin.close()
    view_s, view_cpu_s = used(view, start_s)
    for person in people:
        person.take_over()
    yield f"| all runs, from the last sbatch to the last end | {wall_s:.1f} | |"
    share = f"{100 * view_cpu_s / view_s:.1f} % of a core"
    yield f"| `watch` in a terminal meanwhile: {share} | {view_s:.1f} | {view_cpu_s:.1f} |"
    yield from filter(None, [halfway])
    yield timed("`watch --once` afterwards", folder / "watch.txt", *once, environment=cluster.env)


def after(people: Sequence[Person], folder: Path) -> Iterator[str]:
    """What the instructor does after the day; gives rows, and a line `unexpected: ...` for each surprise."""
    for person in people:
        state = next((run.state for run in find_runs(person.job.folder)), "no run")
        if state != person.planned:
            yield f"unexpected: {person.job.folder}: {state}, planned: {person.planned}"
    files = write_results(people, folder / "my_results")
    words = ["grade", *map(str, files), "--tiny", "--format", "csv", *logs_options(people)]
    yield timed(f"`grade` of {len(files)} files", folder / "grades.csv", *words)
    rows = csv.DictReader((folder / "grades.csv").read_text().splitlines())
    counts = Counter(verdict(row) for row in rows if row["file"] in map(str, files))
    words = ["page", *logs_options(people), "--output", str(folder / "page")]
    yield timed("`page` of all folders", folder / "page.txt", *words)
    sizes = [path.stat().st_size for path in (folder / "page").rglob("*") if path.is_file()]
    yield f"\nPage: {len(sizes)} files, {sum(sizes) / 1e6:.1f} MB"
    yield f"Grades: {', '.join(f'{number} {what}' for what, number in counts.items())}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--people", type=int, default=40)
    options = parser.parse_args()
    if os.geteuid() != 0:
        parser.error("only root can give folders to other users")
    print(f"{options.people} people, Python {platform.python_version()}, {os.cpu_count()} cores")
    print("\n| | wall time (s) | CPU time (s) |\n|---|---|---|")
    rows = []
    with tempfile.TemporaryDirectory(prefix="course-") as name:
        folder = Path(name)
        with ThrowawaySlurm(folder / "slurm", nodes=3) as cluster:
            people = submit_all(cluster, folder / "people", options.people)
            for row in itertools.chain(hold(cluster, people, folder), after(people, folder)):
                rows.append(row)
                print(row, flush=True)
    print(f"Load at the end: {os.getloadavg()[1]:.1f} (5 minutes)")
    return int(any(row.startswith("unexpected") for row in rows))


if __name__ == "__main__":
    sys.exit(main())
