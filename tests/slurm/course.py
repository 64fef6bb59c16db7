"""A course on the throw-away SLURM: what everybody submits, what the instructor sees, grades and shows.

    python tests/slurm/course.py                     # 40 participants: about 5 s of one core for each
    python tests/slurm/course.py --people 4 --keep   # the folder stays

Each participant has a logs folder and submits the baseline, tiny; some runs fail on purpose. Meanwhile `watch` runs in
a terminal, and `watch --once` is asked now and then. Then each writes a my_results file (some wrong, some unreadable),
and `grade` and `page` read all folders. The runs belong to users of made-up numbers, which only root can give away.
Prints a Markdown table of durations and CPU time, and exits with 1 if a run or a verdict is not the one planned.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import io
import os
import platform
import pty
import re
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fcntl import ioctl
from pathlib import Path
from termios import TIOCSWINSZ

REPO = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(REPO)] if str(REPO) not in sys.path else []

from throwaway_slurm import UNFINISHED, ThrowawaySlurm  # noqa: E402

from tests.launching import tiny_profile  # noqa: E402
from tools.__main__ import main as tools  # noqa: E402
from tools.logs.runs import find_runs  # noqa: E402

FIRST_USER = 50_001
# The smallest training that fills every row of the tiny tables.
SETTINGS = {"TRAIN_SIZE": "16", "EVAL_SIZE": "4", "MAX_LENGTH": "64", "GENERATE_SIZE": "2", "SAVE": "no"}
ENDLESS = {"NUM_EPOCHS": "100000"}
FAULTS = {  # by the participant's number modulo 20: what it is, and the state that follows
    2: ("no such model", "failed"),
    5: ("too little memory", "oom"),
    8: ("cancelled", "cancelled"),
    11: ("a setting mistyped", ""),  # refused before there is a run folder
    14: ("time limit", "timeout"),
    17: ("no such model", "failed"),
}
WRONG, UNREADABLE = 3, 6  # by the number modulo 7: my_results with a wrong cell, and one that is no text
LONGEST_START_S = 300  # a job that waits for so long while no other runs will wait for ever
LOOKS = (0.05, 0.3, 0.55, 0.8, 1)  # `watch --once` when more than this share of the jobs has ended, and after the last
TERMINAL = (50, 200)  # lines, columns


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
            settings |= ENDLESS
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
        file = folder / f"{person.user}.md"
        command = ["fill", "baseline", "--tiny", "--plain", "--logs", str(person.logs)]
        completed = person.run is not None and person.expected_state == "completed"
        text = _printed([*command] if completed else [*command, "--blank"])
        if completed and person.number % 7 == WRONG:
            text = re.sub(r"(Steps per Epoch \| )(\d+)", r"\g<1>9\2", text)
        data = b"\x89PNG\r\n\xff\xfe" if person.number % 7 == UNREADABLE else text.encode()
        file.write_bytes(data)
        files.append(file)
    return files


def _printed(command: list[str]) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as shown, contextlib.redirect_stderr(io.StringIO()):
        tools(command)
    return shown.getvalue()


def expected_verdict(person: Person) -> str:
    """What `grade` says of the person's file: right, wrong, or why there is nothing to say."""
    if not person.run:
        return "no run"
    # The two faults end a run before it is known to be a tiny one, which the tables are about.
    if person.number % 7 == UNREADABLE or person.fault in ("no such model", "too little memory"):
        return "cannot be checked"
    if person.expected_state != "completed":
        return "not filled in"
    return "wrong" if person.number % 7 == WRONG else "right"


def verdict(row: dict[str, str]) -> str:
    """The same, from a line of `grade`."""
    if row["problem"]:
        return "no run" if "named after no owner" in row["problem"] else "cannot be checked"
    if row["wrong"] != "0":
        return "wrong"
    return "right" if row["right"] != "0" else "not filled in"


@dataclass(frozen=True)
class Timed:
    """A command that has ended. Attributes: wall_s, cpu_s: with its children; output: what it printed."""

    wall_s: float
    cpu_s: float
    output: str

    def row(self, what: str) -> str:
        return f"| {what} | {self.wall_s:.1f} | {self.cpu_s:.1f} |"


def timed(*words: str, environment: dict[str, str] | None = None) -> Timed:
    """`python -m tools WORDS`."""
    start_s = time.monotonic()
    with tempfile.TemporaryFile("w+") as output:
        command = subprocess.Popen(
            [sys.executable, "-m", "tools", *words], cwd=REPO, env=environment, stdout=output, stderr=output
        )
        _, _, used = os.wait4(command.pid, 0)
        command.returncode = 0
        output.seek(0)
        return Timed(time.monotonic() - start_s, used.ru_utime + used.ru_stime, output.read())


class LiveView:
    """`watch` in a terminal of its own, from `with` to its end."""

    def __init__(self, people: Sequence[Person], environment: dict[str, str]) -> None:
        self.wall_s = self.cpu_s = 0.0
        self._screen = b""
        self._ours, theirs = pty.openpty()
        ioctl(theirs, TIOCSWINSZ, struct.pack("HHHH", *TERMINAL, 0, 0))
        command = [sys.executable, "-m", "tools", "watch", *logs_options(people)]
        environment = environment | {"TERM": "xterm-256color"}
        self._view = subprocess.Popen(command, cwd=REPO, env=environment, stdin=theirs, stdout=theirs, stderr=theirs)
        os.close(theirs)
        self._start_s = time.monotonic()

    def __enter__(self) -> LiveView:
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        os.write(self._ours, b"q")
        _, _, used = os.wait4(self._view.pid, 0)
        self._view.returncode = 0
        self.wall_s, self.cpu_s = time.monotonic() - self._start_s, used.ru_utime + used.ru_stime
        self._reader.join(5)

    def _read(self) -> None:
        with contextlib.suppress(OSError):  # EIO: the view has ended
            while data := os.read(self._ours, 1 << 16):
                self._screen = (self._screen + data)[-(1 << 17) :]

    @property
    def shown(self) -> str:
        """The last whole screen, without colours."""
        screens = self._screen.decode(errors="replace").split("\x1b[H")
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screens[-2] if len(screens) > 2 else "")


def hold(cluster: ThrowawaySlurm, people: Sequence[Person], folder: Path) -> Iterator[str]:
    """Everybody's runs, from sbatch to their end, watched; gives rows of the table of durations.

    Raises:
        TimeoutError: the jobs that are left do not start; the message has SLURM's reasons.
    """
    start_s = time.monotonic()
    jobs = {person: submit(cluster, person) for person in people}
    yield f"| {len(people)} times sbatch | {time.monotonic() - start_s:.1f} | |"
    looks: list[Timed] = []

    def look() -> None:
        looks.append(timed("watch", "--once", *logs_options(people), environment=cluster.env))
        (folder / f"watch{len(looks)}.txt").write_text(looks[-1].output)
        (folder / f"live{len(looks)}.txt").write_text(view.shown)

    with LiveView(people, cluster.env) as view:
        acted: set[Person] = set()
        ran_s = time.monotonic()
        while states := _unfinished(cluster):
            if set(states) != {"PENDING"}:
                ran_s = time.monotonic()
            elif time.monotonic() - ran_s > LONGEST_START_S:
                waiting = cluster.run("squeue", "--noheader", "--format=job %i: %r").strip()
                raise TimeoutError(f"for {LONGEST_START_S} s no job has run, and these wait:\n{waiting}")
            for person in people:
                person.take_over()
                if person.run and person not in acted and (person.run / "steps.csv").exists():
                    acted.add(person)
                    _act(cluster, person, jobs[person])
            ended = 1 - len(states) / len(people)
            if ended > LOOKS[len(looks)]:
                look()
            time.sleep(1)
        wall_s = time.monotonic() - start_s
        look()
    for person in people:
        person.take_over()
    yield f"| all runs, from the first sbatch to the last end | {wall_s:.1f} | |"
    share = f"{100 * view.cpu_s / view.wall_s:.1f} % of a core"
    yield f"| `watch` in a terminal meanwhile: {share} | {view.wall_s:.1f} | {view.cpu_s:.1f} |"
    for number, timing in enumerate(looks, 1):
        yield timing.row(f"`watch --once`, look {number}")


def _unfinished(cluster: ThrowawaySlurm) -> list[str]:
    states = cluster.run("squeue", "--noheader", "--states=all", "--format=%T").split()
    return [state for state in states if state in UNFINISHED]


def _act(cluster: ThrowawaySlurm, person: Person, job: int) -> None:
    """What happens to a training that is on its way."""
    if person.fault == "cancelled":
        cluster.cancel(job)
    elif person.fault == "time limit":
        cluster.expire(job)


def after(people: Sequence[Person], folder: Path) -> Iterator[str]:
    """What the instructor does after the day; gives rows, and a line `unexpected: ...` for each surprise."""
    for person in people:
        state = next((run.state for run in find_runs(person.logs)), "")
        if state != person.expected_state:
            yield f"unexpected: {person.folder}: {state or 'no run'}, planned: {person.expected_state or 'no run'}"
    files = write_results(people, folder / "my_results")
    grade = timed("grade", *map(str, files), "--tiny", "--format", "csv", *logs_options(people))
    yield grade.row(f"`grade` of {len(files)} files")
    (folder / "grades.csv").write_text(grade.output)
    rows = {row["file"]: row for row in csv.DictReader(grade.output.splitlines())}
    counts = Counter()
    for person, file in zip(people, files, strict=True):
        found = verdict(rows[str(file)]) if str(file) in rows else "no line"
        counts[found] += 1
        if found != expected_verdict(person):
            yield f"unexpected: {file}: {found}, planned: {expected_verdict(person)}; {rows.get(str(file))}"
    page = timed("page", *logs_options(people), "--output", str(folder / "page"))
    sizes = [path.stat().st_size for path in (folder / "page").rglob("*") if path.is_file()]
    yield page.row(f"`page` of all folders: {len(sizes)} files, {sum(sizes) / 1e6:.1f} MB")
    yield f"\nGrades: {', '.join(f'{number} {what}' for what, number in counts.items())}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--people", type=int, default=40)
    parser.add_argument("--nodes", type=int, default=3, help="each with one GPU in name only (default: 3)")
    parser.add_argument("--keep", action="store_true", help="keep the folder, and print it")
    options = parser.parse_args()
    if os.geteuid() != 0:
        parser.error("only root can give folders to other users")
    with contextlib.ExitStack() as stack:
        if options.keep:
            folder = Path(tempfile.mkdtemp(prefix="course-"))
            print(folder)
        else:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="course-")))
        people = make_people(folder / "people", options.people)
        print(f"{len(people)} people, Python {platform.python_version()}, {os.cpu_count()} cores")
        print("\n| | wall time (s) | CPU time (s) |\n|---|---|---|")
        rows = []
        with ThrowawaySlurm(folder / "slurm", options.nodes, gpus_per_node=1) as cluster:
            for row in hold(cluster, people, folder):
                rows.append(row)
                print(row, flush=True)
        for row in after(people, folder):
            rows.append(row)
            print(row, flush=True)
        print(f"Load at the end: {os.getloadavg()[1]:.1f} (5 minutes)")
    return int(any(row.startswith("unexpected") for row in rows))


if __name__ == "__main__":
    sys.exit(main())
