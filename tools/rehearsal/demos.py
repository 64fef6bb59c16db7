"""What the instructor's demo scripts and START.md show: commands with their output, from the runs of a rehearsal.

The runs are kept in instructor/demos/runs. What a launcher printed is kept with them; what a tool prints of them is
printed anew, so that a block that shows it is never older than the code.
"""

import contextlib
import io
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from tools.errors import InputError
from tools.logs.run import Run
from tools.logs.runs import find_runs
from tools.rehearsal.chapters import DEMOS, tiny_names
from tools.submit.local_runs import announced_folder
from tools.submit.submissions import Submission, read_argument
from tools.tables import fill as tables
from tools.tables import markdown
from tools.tables.repository import ROOT, exercise_folder
from tools.tables.tiny import tiny_views

RUNS = DEMOS / "runs"
TOOLS = ("fill", "check", "runs", "plan")
LAUNCHED, RESUMED = "launcher.out", "resumed.out"
_EVIDENCE = ("run.json", "summary.json", "steps.csv", "collectives.csv", "train.out", "cpu_*.txt", "nccl*.log")
_TRACEBACK = "Traceback (most recent call last):\n"
_TORCHRUN = re.compile(rf'(?<=^{re.escape(_TRACEBACK)})  File ".*/torchrun", .*\n(?:  .*\n)*', re.MULTILINE)
_NUMBER = re.compile(r"\d[\d.,:]*(?:e[+-]?\d+)?")


def keep(logs: Path) -> int:
    """The rehearsal's runs replace those that are kept, each with what its launcher printed; gives how many."""
    shutil.rmtree(RUNS, ignore_errors=True)
    printed: dict[Path, Path] = {}
    for output in sorted((logs / ".local").glob("*.out")):
        if folder := announced_folder(output):
            printed[folder] = output
    runs = [run for run in find_runs(logs) if run.folder in printed]
    for run in runs:
        files = {path.name: path for pattern in _EVIDENCE for path in run.folder.glob(pattern)}
        files |= {LAUNCHED: printed[run.folder], RESUMED: logs / ".output" / f"resumed-{run.folder.name}.txt"}
        target = RUNS / run.folder.relative_to(logs)
        target.mkdir(parents=True)
        for name, path in files.items():
            if path.exists():
                (target / name).write_text(without_places(path.read_text(errors="replace"), logs))
    return len(runs)


def without_places(text: str, logs: Path) -> str:
    """Paths as seen from the repository: no folder of this machine."""
    text = re.sub(re.escape(f"{logs}/.code/") + r"\w+/", "", text)
    for place, name in ((str(logs), "logs"), (sys.prefix, ".venv"), (f"{ROOT}/", "")):
        text = text.replace(place, name)
    return text


def shown(words: Sequence[str], resumed: bool = False) -> str:
    """A command and what it prints, as a block of Markdown.

    Args:
        words: a line of a list of runs, such as `FAULT=none resilience/drill.slurm`, of a run that is kept; or a tool's
            command with its arguments. `check EXERCISE` checks a participant's copy of its tables.
        resumed: what the run printed when it was resumed.

    Raises:
        InputError: there are no words, no such run is kept, or the command fails.
    """
    if not words:
        raise InputError(f"demo: found nothing; expected a line of {DEMOS}/*.txt, or one of {', '.join(TOOLS)}")
    if words[0] in TOOLS:
        command, lines = _of_tool(words)
    else:
        line = read_argument(shlex.join(words), {})
        run = kept(line)
        command = f"python -m tools submit --resume {_shown_folder(run)} --local" if resumed else typed(line)
        output = (run.folder / (RESUMED if resumed else LAUNCHED)).read_text()
        lines = shortened(without_torchrun(output).rstrip().splitlines())
    return "\n".join(["```text", f"$ {command}", *lines, "```"])


def kept(line: Submission) -> Run:
    """The kept run of a line.

    Raises:
        InputError: there is none.
    """
    for run in find_runs(RUNS) if RUNS.is_dir() else []:
        if run.record["exercise"] == line.exercise.name and own_words(run.record["submission"]) == own_words(line.text):
            return run
    raise InputError(
        f"{line.text}: no such run in {RUNS}; expected a line of {DEMOS}/*.txt, or "
        "`python -m tools rehearse --local --keep`"
    )


def own_words(submission: str) -> list[str]:
    """A run's line without what tiny.env sets, which is the same for all."""
    tiny = tiny_names()
    return [word for word in shlex.split(submission) if word.split("=")[0] not in tiny]


def typed(line: Submission) -> str:
    """How one starts the line's tiny run by hand."""
    gpus = line.count("gpus-per-node")
    settings = line.settings | ({"GPUS_PER_NODE": str(gpus)} if gpus > 1 else {})
    words = [f"{name}={value}" for name, value in settings.items()]
    launcher = f"{line.exercise.name}/{line.launcher}"
    return f"source tiny.env && {shlex.join([*words, 'bash', launcher, *line.arguments])}"


def _shown_folder(run: Run) -> str:
    return f"logs/{run.folder.relative_to(RUNS)}"


def _of_tool(words: Sequence[str]) -> tuple[str, list[str]]:
    """The command as one types it, and what it prints where the kept runs are the participant's logs."""
    from tools.__main__ import main

    words, printed = list(words), io.StringIO()
    with _participants_folder() as folder:
        if words[0] == "check" and words[1:]:
            runs = find_runs(Path("logs"))
            (folder / "my_results.md").write_text(participants_copy(exercise_folder(words[1]) / "README.md", runs))
            words[1] = "my_results.md"
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            try:
                code = main(words)
            except SystemExit as usage_error:
                code = usage_error.code
    if code not in (0, 1):
        raise InputError(f"{shlex.join(words)}: {printed.getvalue().strip()}")
    return shlex.join(["python", "-m", "tools", *words]), printed.getvalue().rstrip().splitlines()


@contextlib.contextmanager
def _participants_folder() -> Iterator[Path]:
    """A folder to stand in, whose logs are the kept runs."""
    before = os.environ.get("LOG_DIR")
    with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):
        Path("logs").symlink_to(RUNS)
        os.environ["LOG_DIR"] = "logs"
        try:
            yield Path(name)
        finally:
            os.environ.pop("LOG_DIR")
            if before is not None:
                os.environ["LOG_DIR"] = before


def participants_copy(readme: Path, runs: Sequence[Run]) -> str:
    """The tables for tiny runs with two cells filled in: the first figure, with a comma; half of the second one.

    Raises:
        InputError: the runs have fewer than two figures.
    """
    views = tiny_views(tables.definitions(readme))
    rows = {view.number: [list(row) for row in view.rows] for view in views}
    exercises = tables.exercises_of(views)
    own = [run for run in runs if run.record.get("exercise") in exercises]
    cells = [
        (rows[view.number][number], column, cell)
        for view in views
        for number, filled in enumerate(tables.fill(view, own).cells)
        for column, cell in enumerate(filled)
        if cell and cell.value is not None and cell.value > 1
    ]
    if len(cells) < 2:
        raise InputError(f"{readme}: the kept runs have {len(cells)} figures for its tables; expected two or more")
    (first, first_column, right), (second, second_column, wrong) = cells[:2]
    first[first_column] = right.text.replace(",", "").replace(".", ",")
    second[second_column] = f"{wrong.value / 2:.{wrong.metric.decimals}f}"
    return "\n\n".join(markdown.render(view, rows[view.number]) for view in views) + "\n"


def without_torchrun(text: str) -> str:
    """A traceback that begins in torchrun without its calls, which are no one's mistake: how many lines they have."""
    return _TORCHRUN.sub(lambda calls: f"  ... {calls[0].count(chr(10))} lines of torchrun's traceback\n", text)


def shortened(lines: Sequence[str]) -> list[str]:
    """Of the lines that differ in their numbers only, the first and the last; `...` stands for those between."""
    last = {form(line): number for number, line in enumerate(lines)}
    found, seen = list[str](), set[str]()
    for number, line in enumerate(lines):
        if form(line) not in seen or last[form(line)] == number:
            found.append(line)
        elif found[-1] != "...":
            found.append("...")
        seen.add(form(line))
    return found


def form(line: str) -> str:
    """A line with its numbers masked: what it says, whatever it measured."""
    return _NUMBER.sub("#", line)
