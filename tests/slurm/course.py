"""A course on the throw-away SLURM: what everybody submits, what the instructor sees, grades and shows.

    python tests/slurm/course.py                     # 40 participants: about 5 s of one core for each
    python tests/slurm/course.py --people 4

Each participant has a logs folder and submits the baseline, tiny; some runs fail on purpose. Meanwhile `watch` runs in
a terminal, and `watch --once` is asked now and then. Then each writes a my_results file (some wrong, some unreadable),
and `grade` and `page` read all folders. The runs belong to users of made-up numbers, which only root can give away.
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

from throwaway_slurm import ThrowawaySlurm  # noqa: E402

from tests.launching import tiny_profile  # noqa: E402
from tools.__main__ import main as tools  # noqa: E402
from tools.logs.runs import find_runs  # noqa: E402

FIRST_USER = 50_001
# The smallest training that fills every row of the tiny tables.
SETTINGS = {"TRAIN_SIZE": "16", "EVAL_SIZE": "4", "MAX_LENGTH": "64", "GENERATE_SIZE": "2", "SAVE": "no"}
FAULTS = {  # by the participant's number modulo 20: what it is, and the state that follows
    2: ("no such model", "failed"),
    5: ("too little memory", "oom"),
    8: ("cancelled", "cancelled"),
    11: ("a setting mistyped", ""),  # refused before there is a run folder
    14: ("time limit", "timeout"),
    17: ("no such model", "failed"),
}
WRONG, UNREADABLE = 3, 6  # by the number modulo 7: my_results with a wrong cell, and one that is no text
LOOKS = (0.05, 0.3, 0.55, 0.8, 1)  # `watch --once` when more than this share of the jobs has ended, and after the last


@dataclass(frozen=True)
class Person:
    """Attributes: number: from 0; folder: for logs/ and what SLURM prints."""

    number: int
    folder: Path

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    @property
    def user(self) -> int:
        return FIRST_USER + self.number

    @property
    def fault(self) -> str:
        return FAULTS.get(self.number % 20, ("", ""))[0]

    @property
    def expected_state(self) -> str:
        return FAULTS.get(self.number % 20, ("", "completed"))[1]

    @property
    def run(self) -> Path | None:
        return next(self.logs.glob("baseline/*"), None)

    def take_over(self) -> None:
        """The run folder belongs to its participant."""
        if self.run and self.run.stat().st_uid != self.user:
            os.chown(self.run, self.user, -1)


def make_people(folder: Path, count: int) -> list[Person]:
    people = [Person(number, folder / f"person{number:02}") for number in range(count)]
    for person in people:
        person.logs.mkdir(parents=True)
    return people


def submit(cluster: ThrowawaySlurm, person: Person) -> int:
    """The participant's sbatch; gives the job's id."""
    settings = tiny_profile() | SETTINGS | {"LOG_DIR": str(person.logs), "OMP_NUM_THREADS": "1"}
    match person.fault:
        case "no such model":
            settings |= {"MODEL_NAME": str(person.folder / "no-model"), "MODEL_INIT": "pretrained"}
        case "a setting mistyped":
            settings |= {"BATCHSIZE": "4", "BATCH_SIZE": "four"}
        case "cancelled" | "time limit":
            settings |= {"NUM_EPOCHS": "100000"}
    memory = "300M" if person.fault == "too little memory" else "2G"
    options = [f"--output={person.folder}/job.out", f"--mem={memory}", "--cpus-per-task=1", "--time=60"]
    inside = person.number % 2 == 1  # people stand in the repository or in the exercise's folder
    script, place = ("baseline.slurm", REPO / "baseline") if inside else ("baseline/baseline.slurm", REPO)
    return cluster.submit(script, cwd=place, options=options, env=settings)


def logs_options(people: Sequence[Person]) -> list[str]:
    return ["--logs", *(str(person.logs) for person in people)]


def write_results(people: Sequence[Person], folder: Path) -> list[Path]:
    """my_results of everybody, from what `fill` prints for them; named after the owner of the runs."""
    folder.mkdir()
    files = []
    for person in people:
        command = ["fill", "baseline", "--tiny", "--plain", "--logs", str(person.logs)]
        completed = person.run is not None and person.expected_state == "completed"
        text = _printed([*command] if completed else [*command, "--blank"])
        if completed and person.number % 7 == WRONG:
            text = re.sub(r"(Steps per Epoch \| )(\d+)", r"\g<1>9\2", text)
        files.append(folder / f"{person.user}.md")
        files[-1].write_bytes(b"\x89PNG\r\n\xff\xfe" if person.number % 7 == UNREADABLE else text.encode())
    return files


def _printed(command: list[str]) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as shown, contextlib.redirect_stderr(io.StringIO()):
        tools(command)
    return shown.getvalue()


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


def live_view(people: Sequence[Person], environment: dict[str, str]) -> subprocess.Popen[bytes]:
    """`watch` in a terminal of its own; it ends when it gets a `q`."""
    watch = shlex.join([sys.executable, "-m", "tools", "watch", *logs_options(people)])
    command = ["script", "--quiet", "--command", watch, "/dev/null"]
    environment = environment | {"TERM": "xterm-256color"}
    return subprocess.Popen(command, cwd=REPO, env=environment, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)


def hold(cluster: ThrowawaySlurm, people: Sequence[Person], folder: Path) -> Iterator[str]:
    """Everybody's runs, from sbatch to their end, watched; gives rows of the table of durations."""
    start_s = time.monotonic()
    jobs = {person: submit(cluster, person) for person in people}
    yield f"| {len(people)} times sbatch | {time.monotonic() - start_s:.1f} | |"
    view, view_start_s = live_view(people, cluster.env), time.monotonic()
    looks: list[str] = []

    def look() -> None:
        what, output = f"`watch --once`, look {len(looks) + 1}", folder / f"watch{len(looks) + 1}.txt"
        looks.append(timed(what, output, "watch", "--once", *logs_options(people), environment=cluster.env))

    acted: set[Person] = set()
    while unfinished := cluster.unfinished():
        for person in people:
            person.take_over()
            if person.run and person not in acted and (person.run / "steps.csv").exists():
                acted.add(person)
                if person.fault == "cancelled":
                    cluster.cancel(jobs[person])
                elif person.fault == "time limit":
                    cluster.expire(jobs[person])
        if 1 - len(unfinished) / len(people) > LOOKS[len(looks)]:
            look()
        time.sleep(1)
    wall_s = time.monotonic() - start_s
    look()
    view.stdin.write(b"q")
    view.stdin.close()
    view_s, view_cpu_s = used(view, view_start_s)
    for person in people:
        person.take_over()
    yield f"| all runs, from the first sbatch to the last end | {wall_s:.1f} | |"
    share = f"{100 * view_cpu_s / view_s:.1f} % of a core"
    yield f"| `watch` in a terminal meanwhile: {share} | {view_s:.1f} | {view_cpu_s:.1f} |"
    yield from looks


def after(people: Sequence[Person], folder: Path) -> Iterator[str]:
    """What the instructor does after the day; gives rows, and a line `unexpected: ...` for each surprise."""
    for person in people:
        state = next((run.state for run in find_runs(person.logs)), "")
        if state != person.expected_state:
            yield f"unexpected: {person.folder}: {state or 'no run'}, planned: {person.expected_state or 'no run'}"
    files = write_results(people, folder / "my_results")
    words = ["grade", *map(str, files), "--tiny", "--format", "csv", *logs_options(people)]
    yield timed(f"`grade` of {len(files)} files", folder / "grades.csv", *words)
    rows = {row["file"]: row for row in csv.DictReader((folder / "grades.csv").read_text().splitlines())}
    counts = Counter()
    for file in files:
        counts[verdict(rows[str(file)]) if str(file) in rows else "no line"] += 1
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
        people = make_people(folder / "people", options.people)
        with ThrowawaySlurm(folder / "slurm", nodes=3) as cluster:
            for row in itertools.chain(hold(cluster, people, folder), after(people, folder)):
                rows.append(row)
                print(row, flush=True)
    print(f"Load at the end: {os.getloadavg()[1]:.1f} (5 minutes)")
    return int(any(row.startswith("unexpected") for row in rows))


if __name__ == "__main__":
    sys.exit(main())
