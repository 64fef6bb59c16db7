"""submit.txt: the runs of an exercise, one per line, as one would type them.

    MODEL_NAME=bigscience/bloom-3b TRAIN_SIZE=10000 --mem=200G deepspeed.slurm ds_configs/zero3_offload.json
    settings                                        options    launcher        its arguments

Settings and options may be left out. A variable that is set in the shell wins, as it does over env_vars.sh: so
`source tiny.env` turns every line into its tiny version. In a list of runs outside the exercises' folders a launcher is
written with its exercise, as in fsdp/multi_gpu.slurm.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache, cached_property
from itertools import pairwise
from pathlib import Path

from tools.errors import InputError, LogError
from workshop.run_folder.env_file import exported
from workshop.run_folder.errors import utf8_lines
from workshop.run_folder.exercises import REPO, exercises_with, find_exercise, reads_argument, repository_of
from workshop.run_folder.settings import LADDER_NAMES, LIBRARY_PREFIXES, defaults, is_tiny
from workshop.run_folder.typos import check_shell

# Options that change what is measured. The others (memory, time limit, queue) may differ between two runs of one line.
_SHAPE = ("constraint", "gpus", "gpus-per-node", "gres", "nodes", "ntasks", "ntasks-per-node")
# Variables that a launcher reads without SLURM; in a line these are options.
_OPTION_NAMES = {"GPUS_PER_NODE": "--gpus-per-node=N", "NNODES": "--nodes=N"}
# Where a run goes and how it is started: no part of what it is.
OPERATIONAL = {
    *("LOG_DIR", "RUN_DIR", "OUTPUT_DIR", "EXPERIMENT_NAME", "CONFIG"),
    *("CONDA_SH_PATH", "CONDA_ENV", "WANDB_MODE", "REPORT_TO"),
}
# Settings that the offload exercise also takes as arguments, which win.
_ARGUMENTS = {"--model-name": "MODEL_NAME", "--steps": "MAX_STEPS"}
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_OPTION = re.compile(r"--([a-z][a-z-]*)(?:=(.*))?", re.DOTALL)
# How a launcher names its configuration: start_run "${1:-ds_config.json}", "$1" or "${DS_CONFIG:-FILE}".
_CONFIG = re.compile(r'^start_run "\$\{?(\w+)(?::-([^}]*))?\}?"', re.MULTILINE)


@dataclass(frozen=True)
class Submission:
    """One line of a submit.txt, with what the shell overrides already applied.

    Attributes:
        exercise: the exercise's folder.
        file: the submit.txt, or another list of runs; None: the line is an argument of a command.
        line: line number in it, counted from 1; written: the text of the line.
        settings: environment variables of the run.
        overrides: the names among them whose value is the shell's.
        replaced: what the line names where the shell has another value.
        options: sbatch options, those of the line before those of the command line.
        launcher: file name of the .slurm in the folder.
        arguments: what follows the launcher.
    """

    exercise: Path
    file: Path | None
    line: int | None
    written: str
    settings: dict[str, str]
    overrides: tuple[str, ...]
    replaced: dict[str, str]
    options: tuple[str, ...]
    launcher: str
    arguments: tuple[str, ...]

    @property
    def place(self) -> str:
        """The file and the line, as errors name them; of an argument the argument."""
        if self.file is None:
            return repr(self.written)
        elsewhere = "" if self.file.parent == self.exercise else f" ({self.exercise.name})"
        return f"{self.file.parent.name}/{self.file.name}:{self.line}{elsewhere}"

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
        forms = (self.written, f"{self.place}  {self.short}")
        return any(" ".join(text.split()) in " ".join(form.split()) for form in forms)

    @property
    def argument_settings(self) -> dict[str, str]:
        """The settings among the arguments, as `--steps 20` or `--steps=20`."""
        words = [word for argument in self.arguments for word in argument.split("=", 1)]
        after = dict(pairwise(words))
        return {name: after[option] for option, name in _ARGUMENTS.items() if option in after}

    @property
    def tiny(self) -> bool:
        """Whether `fill --tiny` will show its run."""
        return is_tiny(self.settings.get("MODEL_NAME", ""))

    @cached_property
    def shape(self) -> dict[str, str]:
        """Options that change what is measured; the last one of a name counts, as it does for sbatch."""
        found = (_OPTION.fullmatch(option) for option in self.options)
        return {match[1]: match[2] for match in found if match and match[1] in _SHAPE and match[2]}

    @property
    def config_path(self) -> Path | None:
        """The launcher's argument or variable that names the configuration, else its default."""
        if not (said := _CONFIG.search((self.exercise / self.launcher).read_text())):
            return None
        if said[1].isdecimal():
            named = "".join(self.arguments[int(said[1]) - 1 : int(said[1])])
        else:
            named = self.settings.get(said[1])
        named = named or said[2]
        return _file(self.exercise, named) if named else None

    def count(self, option: str) -> int:
        """The value of --nodes or --gpus-per-node, else the launcher's #SBATCH, else 1. InputError for a range."""
        launcher = (self.exercise / self.launcher).read_text()
        default = re.search(rf"^#SBATCH\s+--{option}=(\S+)", launcher, re.MULTILINE)
        value = self.shape.get(option) or (default[1] if default else "1")
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
    """The variables a run reads: those that all runs have, and what the exercise's env_vars.sh exports beside them.

    Where a rung is named, its file exports the ladder's.
    """
    own = exported(exercise / "env_vars.sh")
    of_rung = LADDER_NAMES if "RUNG" in own else ()
    return frozenset({*defaults(), *own, *of_rung} - {"LOG_DIR", "RUN_DIR", "CONFIG"})


def exercise_files(names: Sequence[str]) -> list[Path]:
    """The submit.txt of the exercises named, or of all that have one.

    Raises:
        InputError: a name is no folder with a submit.txt.
    """
    every = exercises_with("submit.txt")
    found = []
    for name in names:
        folder = find_exercise(name, "submit.txt")
        if folder is None:
            have = ", ".join(path.name for path in every) or "none yet"
            raise InputError(f"{name}: no folder with a submit.txt; those that have one: {have}")
        found.append(folder.resolve())
    return [folder / "submit.txt" for folder in (dict.fromkeys(found) if names else every)]


def every_list() -> list[Path]:
    """Each submit.txt, and the other lists of full runs in the exercises' folders, as speed-ladder/models.txt."""
    lists = [path for file in exercise_files([]) for path in sorted(file.parent.glob("*.txt"))]
    return [path for path in lists if path.name != "tiny.txt"]


def read(path: Path, shell: Mapping[str, str], extra_options: Sequence[str] = ()) -> list[Submission]:
    """The lines of an exercise's submit.txt, or of another list of runs.

    Raises:
        LogError: a line names a launcher, a configuration or a setting that does not exist; or there is no line.
    """
    numbered = [(number, line.strip()) for number, line in enumerate(utf8_lines(path), start=1)]
    lines = [(number, line) for number, line in numbered if line and not line.startswith("#")]
    if not lines:
        raise LogError(path, None, "no run", "a line as fsdp/multi_gpu.slurm")
    path = path.resolve()  # in an exercise's folder `tiny.txt` alone names none
    return [_submission(path, number, line, shell, extra_options) for number, line in lines]


def read_argument(line: str, shell: Mapping[str, str]) -> Submission:
    """The line that a command was given, its launcher with its exercise. Errors, as those of read, name the line."""
    return _submission(None, None, line, shell)


def shell_notes(lines: Sequence[Submission], shell: Mapping[str, str]) -> list[str]:
    """Notes on settings of these lines that the shell overrides.

    Raises:
        InputError: the shell has a variable that is nearly a setting's name.
    """
    check_shell(shell)
    notes = []
    if overrides := sorted({name for line in lines for name in line.overrides}):
        notes.append(f"from your shell, for every run: {' '.join(f'{name}={shell[name]}' for name in overrides)}")
    pairs = {item for line in lines for item in line.replaced.items()}
    if replaced := [f"{name}={shell[name]}, not {value}" for name, value in sorted(pairs)]:
        notes.append(f"warning: your shell's value replaces the one that lines name: {'; '.join(replaced)}")
    return notes


def _submission(
    path: Path | None, number: int | None, line: str, shell: Mapping[str, str], extra_options: Sequence[str] = ()
) -> Submission:
    def refusal(found: str, expected: str) -> LogError:
        return LogError(path or repr(line), number, found, expected)

    try:
        rest = shlex.split(line, comments=True)
    except ValueError as error:
        raise refusal(line, f"a shell line ({error})") from error
    launcher = next((word for word in rest if word.endswith(".slurm")), "")
    if not path and "/" not in launcher:
        raise refusal(launcher or "no launcher", "a launcher with its exercise, as in fsdp/multi_gpu.slurm")
    named = Path(launcher).parent
    folder = (find_exercise(named, "*", REPO) or REPO / named) if "/" in launcher else path.parent
    known = known_settings(folder)
    settings, options = {}, []
    while rest and (match := _ASSIGNMENT.fullmatch(rest[0])):
        if match[1] not in known and not match[1].startswith(LIBRARY_PREFIXES):
            if match[1] in _OPTION_NAMES:
                raise refusal(match[1], f"the option {_OPTION_NAMES[match[1]]}, after the settings")
            close = get_close_matches(match[1], known, n=1)
            raise refusal(match[1], f"a setting; did you mean {close[0]}?" if close else f"one of {sorted(known)}")
        settings[match[1]] = match[2]
        rest.pop(0)
    if rest and rest[0] in ("sbatch", "bash"):  # a line as the READMEs have it
        rest.pop(0)
    while rest and rest[0].startswith("-"):
        if not _OPTION.fullmatch(rest[0]):
            raise refusal(rest[0], "an sbatch option as --name=value")
        options.append(rest.pop(0))
    if not rest or not (folder / Path(rest[0]).name).is_file():
        launchers = ", ".join(sorted(file.name for file in folder.glob("*.slurm"))) or "none there yet"
        raise refusal(rest[0] if rest else "no launcher", f"a launcher of {folder.name}: {launchers}")
    for argument in rest[1:]:
        if argument.endswith(".json") and not argument.startswith("-") and not _file(folder, argument).is_file():
            configs = sorted(str(file.relative_to(folder)) for file in folder.glob("**/*.json"))
            raise refusal(argument, f"a configuration of {folder.name}: {', '.join(configs) or 'none'}")
    if (last := len(rest) - 1) and not reads_argument(folder / Path(rest[0]).name, last):
        raise refusal(rest[-1], f"nothing there: {rest[0]} reads no argument {last}; options stand before it")
    from_shell = {name: shell[name] for name in known - OPERATIONAL if shell.get(name)}
    return Submission(
        exercise=folder,
        file=path,
        line=number,
        written=line,
        settings=settings | from_shell,
        overrides=tuple(sorted(from_shell)),
        replaced={name: value for name, value in settings.items() if from_shell.get(name, value) != value},
        options=(*options, *extra_options),
        launcher=Path(rest[0]).name,
        arguments=tuple(rest[1:]),
    )
