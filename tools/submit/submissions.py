"""Lines of submit.txt (workshop/settings/run_lines.py), checked, with what the shell overrides.

A variable that is set in the shell wins, as it does over env_vars.sh: so `source tiny.env` turns every line into its
tiny version.
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches
from functools import cache, cached_property
from pathlib import Path

from tools.errors import InputError, LogError
from workshop.record.exercises import REPO, Launcher, declared, exercises_with, find_exercise, of_day, repository_of
from workshop.settings.configuration import settings_class
from workshop.settings.env_file import exported
from workshop.settings.run_lines import RunLine, by_name, read_line, read_lines
from workshop.settings.settings import LIBRARY_PREFIXES, is_tiny
from workshop.settings.typos import check_shell

# Options that change what is measured. The others (memory, time limit, queue) may differ between two runs of one line.
_SHAPE = ("constraint", "gpus", "gpus-per-node", "gres", "nodes", "ntasks", "ntasks-per-node")
# Variables that a launcher reads without SLURM; in a line these are options.
_OPTION_NAMES = {"GPUS_PER_NODE": "--gpus-per-node=N", "NNODES": "--nodes=N"}
# Where a run goes and how it is started: no part of what it is.
OPERATIONAL = {
    *("LOG_DIR", "RUN_DIR", "OUTPUT_DIR", "EXPERIMENT_NAME", "CONFIG"),
    *("CONDA_SH_PATH", "CONDA_ENV", "WANDB_MODE", "REPORT_TO"),
}


@dataclass(frozen=True)
class Submission:
    """One line of a submit.txt, with what the shell overrides already applied.

    Attributes:
        exercise: the exercise's folder.
        file: the submit.txt, or another list of runs; None: the line is an argument of a command.
        source: the line as it is written.
        settings: environment variables of the run.
        overrides: the names among them whose value is the shell's.
        options: sbatch options, those of the line before those of the command line.
    """

    exercise: Path
    file: Path | None
    source: RunLine
    settings: dict[str, str]
    overrides: frozenset[str]
    options: tuple[str, ...]

    launcher = property(lambda self: Path(self.source.launcher).name)  # of the .slurm in the folder
    arguments = property(lambda self: self.source.arguments)

    @property
    def place(self) -> str:
        """The file and the line, as errors name them; of an argument the argument."""
        if self.file is None:
            return repr(self.source.written)
        elsewhere = "" if self.file.parent == self.exercise else f" ({self.exercise.name})"
        return f"{self.file.parent.name}/{self.file.name}:{self.source.number}{elsewhere}"

    @cached_property
    def text(self) -> str:
        """The line in its normal form; run.json records it as `submission`, two equal ones are the same run."""
        return self._normal(self.settings)

    @property
    def short(self) -> str:
        """The line without what the shell sets, which is equal for all lines."""
        return self._normal({name: self.settings[name] for name in self.settings if name not in self.overrides})

    def _normal(self, settings: Mapping[str, str]) -> str:
        assignments = [f"{name}={value}" for name, value in sorted(settings.items())]
        shape = [f"--{name}={value}" for name, value in sorted(self.shape.items())]
        return shlex.join([*assignments, *shape, self.launcher, *self.arguments])

    def contains(self, text: str) -> bool:
        """Whether the line, as written or as `submit` prints it, contains this text."""
        forms = (self.source.written, f"{self.place}  {self.short}")
        return any(" ".join(text.split()) in " ".join(form.split()) for form in forms)

    @property
    def takes(self) -> Launcher:
        """What its launcher takes."""
        return declared(self.exercise).launcher(self.launcher)

    @property
    def tiny(self) -> bool:
        """Whether `fill --tiny` will show its run."""
        return is_tiny(self.settings.get("MODEL_NAME", ""))

    @cached_property
    def shape(self) -> dict[str, str]:
        """Options that change what is measured."""
        return {name: value for name, value in by_name(self.options).items() if name in _SHAPE}

    @property
    def config_path(self) -> Path | None:
        """The launcher's argument or variable that names the configuration, else its default."""
        named = self.takes.config_of(self.arguments, self.settings)
        return _file(self.exercise, named) if named else None

    @property
    def script(self) -> str:
        """The Python file that the launcher starts."""
        return self.takes.script_of(self.arguments)

    def count(self, option: str) -> int:
        """The value of --nodes or --gpus-per-node, else the launcher's. InputError for a range."""
        value = self.shape.get(option) or str(getattr(self.takes, option.replace("-", "_")))
        number = value.rsplit(":", 1)[-1]  # h200:4
        if not number.isdecimal() or int(number) < 1:
            raise InputError(f"{self.place}: --{option}={value}: expected a whole number of at least 1")
        return int(number)


def _file(exercise: Path, named: str) -> Path:
    """As in a job: of the repository if there is such a file, else of the exercise."""
    path = repository_of(exercise) / named
    return (path if path.is_file() else exercise / named).resolve()


@cache
def known_settings(exercise: Path) -> frozenset[str]:
    """The variables a run reads: its settings, and what the exercise's env_vars.sh exports beside them."""
    declared_names = {item.name.upper() for item in fields(settings_class(exercise))}
    return frozenset({*declared_names, *exported(exercise / "env_vars.sh")} - {"LOG_DIR", "RUN_DIR", "CONFIG"})


def exercise_files(names: Sequence[str]) -> list[Path]:
    """The submit.txt of the exercises named, also by a day of the timetable, or of all that have one.

    Raises:
        InputError: a name is no folder with a submit.txt.
    """
    every = exercises_with("submit.txt")
    chosen = []
    for name in names:
        folders = of_day(name) or [find_exercise(name, "submit.txt")]
        if None in folders:
            have = ", ".join(path.name for path in every) or "none yet"
            raise InputError(f"{name}: no folder with a submit.txt; those that have one: {have}")
        chosen += [folder.resolve() for folder in folders]
    return [folder / "submit.txt" for folder in (dict.fromkeys(chosen) if names else every)]


def every_list() -> list[Path]:
    """Each submit.txt, and the other lists of full runs in the exercises' folders, as speed-ladder/models.txt."""
    lists = [path for file in exercise_files([]) for path in sorted(file.parent.glob("*.txt"))]
    return [path for path in lists if path.name != "tiny.txt"]


def read_list(path: Path, shell: Mapping[str, str], extra_options: Sequence[str] = ()) -> list[Submission]:
    """The lines of an exercise's submit.txt, or of another list of runs.

    Raises:
        LogError: a line names a launcher, a configuration or a setting that does not exist; or there is no line.
    """
    path = path.resolve()  # in an exercise's folder `tiny.txt` alone names none
    return [_submission(path, line, shell, extra_options) for line in read_lines(path)]


def read_argument(line: str, shell: Mapping[str, str]) -> Submission:
    """The line that a command was given, its launcher with its exercise. Errors name it, as those of read_list do."""
    return _submission(None, read_line(line, repr(line)), shell)


def shell_notes(lines: Sequence[Submission], shell: Mapping[str, str]) -> list[str]:
    """Notes on settings of these lines that the shell overrides.

    Raises:
        InputError: the shell has a variable that is nearly a setting's name.
    """
    check_shell(shell)
    notes = []
    if overrides := sorted({name for line in lines for name in line.overrides}):
        notes.append(f"from your shell, for every run: {' '.join(f'{name}={shell[name]}' for name in overrides)}")
    pairs = {
        (name, value) for line in lines for name, value in line.source.settings.items() if line.settings[name] != value
    }
    if replaced := [f"{name}={shell[name]}, not {value}" for name, value in sorted(pairs)]:
        notes.append(f"warning: your shell's value replaces the one that lines name: {'; '.join(replaced)}")
    return notes


def _submission(
    path: Path | None, line: RunLine, shell: Mapping[str, str], extra_options: Sequence[str] = ()
) -> Submission:
    def refusal(found: str, expected: str) -> LogError:
        return LogError(path or repr(line.written), line.number, found, expected)

    launcher = line.launcher
    if not path and "/" not in launcher:
        raise refusal(launcher or "no launcher", "a launcher with its exercise, as in fsdp/multi_gpu.slurm")
    named = Path(launcher).parent
    folder = (find_exercise(named, "*", REPO) or REPO / named) if "/" in launcher else path.parent
    known = known_settings(folder)
    for name in line.settings:
        if name not in known and not name.startswith(LIBRARY_PREFIXES):
            if name in _OPTION_NAMES:
                raise refusal(name, f"the option {_OPTION_NAMES[name]}, after the settings")
            close = get_close_matches(name, known, n=1)
            raise refusal(name, f"a setting; did you mean {close[0]}?" if close else f"one of {sorted(known)}")
    if not launcher or not (folder / Path(launcher).name).is_file():
        launchers = ", ".join(sorted(file.name for file in folder.glob("*.slurm"))) or "none there yet"
        raise refusal(launcher or "no launcher", f"a launcher of {folder.name}: {launchers}")
    for argument in line.arguments:
        if argument.endswith(".json") and not argument.startswith("-") and not _file(folder, argument).is_file():
            configs = sorted(str(file.relative_to(folder)) for file in folder.glob("**/*.json"))
            raise refusal(argument, f"a configuration of {folder.name}: {', '.join(configs) or 'none'}")
    last = len(line.arguments)
    if not declared(folder).launcher(Path(launcher).name).reads(last):
        expected = f"nothing there: {launcher} reads no argument {last}; options stand before it"
        raise refusal(line.arguments[-1], expected)
    from_shell = {name: shell[name] for name in known - OPERATIONAL if shell.get(name)}
    options = (*line.options, *extra_options)
    return Submission(folder, path, line, line.settings | from_shell, frozenset(from_shell), options)
