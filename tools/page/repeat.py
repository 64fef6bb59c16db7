"""The command that repeats a run, from what the run wrote down about itself."""

from __future__ import annotations

import re
import shlex
from functools import cache
from typing import Any

from tools.errors import InputError
from tools.logs.run import Run
from tools.submit.submissions import OPERATIONAL, read_argument
from tools.submit.submitted import effective_settings, same
from tools.tables.repository import ROOT

_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=", re.ASCII)


def command(run: Run) -> str:
    """The command that repeats the run, typed in the repository's root; "" if the run's record lacks something."""
    record = run.record
    exercise = str(record.get("exercise"))
    if record.get("submission"):
        return _of_submission(exercise, str(record["submission"]))
    # Of others env_vars.sh is not sourced: a record may have been written by anybody.
    if exercise not in {path.parent.name for path in ROOT.glob("*/submit.txt")}:
        return ""
    launchers = {path.name for path in (ROOT / exercise).glob("*.slurm")}
    launcher = record.get("launcher") or (min(launchers) if len(launchers) == 1 else None)
    if launcher not in launchers or not record.get("settings"):
        return ""
    words = [f"--nodes={record.get('nodes') or 1}", f"--gpus-per-node={record.get('gpus_per_node') or 1}"]
    words += [f"{exercise}/{launcher}", *_configuration(exercise, record.get("config"))]
    try:
        usual = dict(_usual_settings(tuple(words)))
    except (InputError, OSError):
        return ""
    other = {name: value for name, value in sorted(record["settings"].items()) if _differs(name, value, usual)}
    texts = {name: str(value).lower() if isinstance(value, bool) else value for name, value in other.items()}
    return _shell_line([f"{name.upper()}={text}" for name, text in texts.items()], words)


def _of_submission(exercise: str, line: str) -> str:
    """The line of submit.txt, with `sbatch` after its settings and the exercise before its launcher."""
    try:
        words = shlex.split(line)
    except ValueError:
        return ""
    launcher = next((place for place, word in enumerate(words) if word.endswith(".slurm")), None)
    if launcher is None:
        return ""
    first = next(place for place, word in enumerate(words) if "=" not in word.lstrip("-") or word.startswith("-"))
    if not all(_ASSIGNMENT.match(word) for word in words[:first]):
        return ""
    words[launcher] = f"{exercise}/{words[launcher]}"
    return _shell_line(words[:first], words[first:])


def _shell_line(assignments: list[str], words: list[str]) -> str:
    """A value in quotes stays an assignment, all of it in quotes would be a command."""
    pairs = [assignment.partition("=") for assignment in assignments]
    return " ".join([*(f"{name}={shlex.quote(value)}" for name, _, value in pairs), "sbatch", shlex.join(words)])


def _configuration(exercise: str, stem: Any) -> list[str]:
    """The configuration's file as the launcher's argument; the exercise's own needs none."""
    found = [path for path in (ROOT / exercise).glob("*_configs/*.json") if path.stem == stem]
    return [str(found[0].relative_to(ROOT / exercise))] if found else []


@cache
def _usual_settings(words: tuple[str, ...]) -> tuple[tuple[str, Any], ...]:
    """What the run would have with nothing set: env_vars.sh and the defaults."""
    return tuple(effective_settings(read_argument(shlex.join(words), {})).items())


def _differs(name: str, value: Any, usual: dict[str, Any]) -> bool:
    return name.upper() not in OPERATIONAL and usual.get(name) is not None and not same(value, usual[name])
