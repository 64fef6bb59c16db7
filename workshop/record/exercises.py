"""Where the exercises are, and what each declares in its exercise.toml.

They lie at the top of the repository and in further/. A run records its folder's last name.
"""

import shlex
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Self

from workshop.record.errors import InputError

REPO = Path(__file__).resolve().parents[2]
FURTHER = "further"


@dataclass(frozen=True, kw_only=True)
class Launcher:
    """What a .slurm takes.

    Attributes:
        arguments: what each is: `config`, `script`, or `...`: all of them go to the script.
        settings: the script's options that are settings, and win over them: `--steps` is MAX_STEPS.
        script: that it starts, unless an argument names it.
        config: its configuration, unless an argument or `config_variable` names another.
        nodes, gpus_per_node: as in its #SBATCH lines.
        most_nodes, most_gpus: that it can use; 0: any number.
        array: without arguments, task N of a job array is line N of submit.txt.
    """

    arguments: Sequence[str] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    script: str = "train.py"
    config: str = ""
    config_variable: str = ""
    nodes: int = 1
    gpus_per_node: int = 1
    most_nodes: int = 0
    most_gpus: int = 0
    array: bool = False

    def reads(self, number: int) -> bool:
        """Return whether it reads its argument of this number, counted from 1."""
        return number <= len(self.arguments) or "..." in self.arguments

    def argument(self, kind: str, given: Sequence[str]) -> str:
        """Return the argument of this kind among those given; "" without one."""
        return "".join(text for name, text in zip(self.arguments, given, strict=False) if name == kind)

    def script_of(self, given: Sequence[str]) -> str:
        return self.argument("script", given) if "script" in self.arguments else self.script

    def config_of(self, given: Sequence[str], environ: Mapping[str, str]) -> str:
        return self.argument("config", given) or environ.get(self.config_variable) or self.config

    def settings_among(self, given: Sequence[str]) -> dict[str, str]:
        """Return the settings that options give, as `--steps 20` or `--steps=20`."""
        after = dict(pairwise(word for argument in given for word in argument.split("=", 1)))
        return {name: after[option] for option, name in self.settings.items() if option in after}


@dataclass(frozen=True, kw_only=True)
class Exercise:
    """An exercise.toml.

    Attributes:
        days: of the timetable in instructor/README.md.
        settings: its class, `module.Class`; "": the workshop's.
        modules: folders of the repository whose modules it imports, beside its own.
        scripts: each with the configuration that it takes: deepspeed, fsdp, any (of these two), rule (of weak
            scaling), none.
        trainer: False: its scripts train without the Trainer.
        refused_elsewhere: settings that change nothing in an exercise that does not have them.
        record: keys that its runs add to run.json, by part (settings, sharding) and type.
    """

    folder: Path
    days: Sequence[str] = ()
    settings: str = ""
    modules: Sequence[str] = ()
    scripts: Mapping[str, str] = field(default_factory=dict)
    trainer: bool = True
    refused_elsewhere: Sequence[str] = ()
    record: Mapping[str, Mapping[str, Sequence[str]]] = field(default_factory=dict)
    launchers: Mapping[str, Launcher] = field(default_factory=dict)

    def launcher(self, name: str) -> Launcher:
        """Return what is declared for a launcher. Raises InputError."""
        if name not in self.launchers:
            path = self.folder / "exercise.toml"
            raise InputError(f'{path}: found no launcher {name}; expected a table [launchers."{name}"]')
        return self.launchers[name]

    def takes(self, script: str) -> str:
        """Return the kind of configuration that a script takes."""
        return self.scripts.get(script, "any")


@cache
def declared(folder: Path) -> Exercise:
    """Return what an exercise's folder declares; nothing without an exercise.toml."""
    path = folder / "exercise.toml"
    values = tomllib.loads(path.read_text()) if path.exists() else {}
    launchers = {name: Launcher(**facts) for name, facts in values.pop("launchers", {}).items()}
    return Exercise(folder=folder, launchers=launchers, **values)


@dataclass(frozen=True)
class Start:
    """How a training was started.

    Attributes: exercise: its folder; launcher: the file's name, "" without one; script: that it starts; processes: that
        train, on all nodes; nodes, gpus_per_node: that the launcher asked for; rank, node: this process's numbers;
        job: SLURM's id, "" without SLURM; requeues: how often SLURM has queued it again; supervisor: id of the process
        that the launcher has become.
    """

    exercise: Path = Path()
    launcher: str = ""
    script: str = "train.py"
    processes: int = 1
    nodes: int = 1
    gpus_per_node: int = 1
    rank: int = 0
    node: int = 0
    job: str = ""
    requeues: int = 0
    supervisor: int = 0

    @classmethod
    def of(cls, environ: Mapping[str, str], exercise: Path = Path()) -> Self:
        """Args: environ: of the job's launcher or of a training process."""
        exercise, launcher = exercise.absolute(), environ.get("LAUNCHER", "")
        words = shlex.split(environ.get("LAUNCHER_ARGUMENTS", ""))
        script = declared(exercise).launcher(launcher).script_of(words) if launcher else "train.py"
        nodes, per_node = (int(environ.get(name, "1")) for name in ("NNODES", "NPROC_PER_NODE"))
        processes, job = int(environ.get("WORLD_SIZE", nodes * per_node)), environ.get("SLURM_JOB_ID", "")
        names = ("RANK", "SLURM_NODEID", "SLURM_RESTART_COUNT", "LAUNCHER_PID")
        rank, node, requeues, supervisor = (int(environ.get(name) or 0) for name in names)
        return cls(exercise, launcher, script, processes, nodes, per_node, rank, node, job, requeues, supervisor)


def every_exercise() -> list[Exercise]:
    """All that declare something, in alphabetical order."""
    return [declared(folder) for folder in exercises_with("exercise.toml")]


def of_day(day: str) -> list[Path]:
    """Return the folders of the exercises of a day of the timetable; [] for another text."""
    return [exercise.folder for exercise in every_exercise() if day in exercise.days]


def readers_only() -> dict[str, str]:
    """Return the settings that change nothing in most exercises, with the exercise that has them."""
    return {name: exercise.folder.name for exercise in every_exercise() for name in exercise.refused_elsewhere}


def exercises_with(holding: str, root: Path = REPO) -> list[Path]:
    """The exercises' folders that hold a file of this name or pattern, in alphabetical order of their names."""
    folders = {file.parent for level in ("*", f"{FURTHER}/*") for file in root.glob(f"{level}/{holding}")}
    return sorted(folders, key=lambda folder: folder.name)


def find_exercise(name: str | Path, holding: str, *roots: Path) -> Path | None:
    """The folder meant by `lora`, `further/lora` or a path, seen from the first of the roots where it holds the file.

    Args:
        holding: a file's name or pattern.
        roots: by default the current folder, then the repository.
    """
    places = (root / part / name for root in roots or (Path(), REPO) for part in ("", FURTHER))
    return next((folder for folder in places if any(folder.glob(holding))), None)


def repository_of(exercise: Path) -> Path:
    """The folder of the repository, or of its copy, that an exercise's folder belongs to."""
    return exercise.parents[1] if exercise.parent.name == FURTHER else exercise.parent
