"""Finds the runs of a submission by what run.json records, not in a list that could be wrong."""

import re
import shlex
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from tools.errors import InputError
from tools.logs.run import SHOWN_STATES, Run
from tools.submit.submissions import OPERATIONAL, Submission, known_settings
from workshop.record.errors import utf8_lines
from workshop.record.exercises import Start, repository_of
from workshop.settings.configuration import Configuration, check_configuration, settings_class
from workshop.settings.env_file import sourced
from workshop.settings.settings import Settings, defaults

STATES = ("missing", "queued", *SHOWN_STATES)
# What an env_vars.sh has beside the variables that it reads: comments, and NAME="${NAME:-default}" of what it sets.
_NOT_READ = re.compile(r"#.*|\$\{\w+:-|\w+=")


def runs_of(submission: Submission, runs: Sequence[Run]) -> list[Run]:
    """The runs that are this submission, also if started by hand or before an edit of submit.txt.

    What a run records about itself decides: its `submission`, and every setting it used. So a tiny run does not count
    as the real one, nor does a run from before an edit of a setting in env_vars.sh.
    """
    path = submission.config_path
    shape = {"nodes": submission.count("nodes"), "gpus_per_node": submission.count("gpus-per-node")}
    facts = {"exercise": submission.exercise.name} | shape | {"config": path.stem if path else None}
    only_configs = all(argument.endswith(".json") for argument in submission.arguments)

    def may_be(run: Run) -> bool:
        if run.record.submission is not None:
            return run.record.exercise == facts["exercise"] and run.record.submission == submission.text
        # Started by hand: known only by its settings, which rank 0 writes.
        return only_configs and bool(run.settings) and run.matches(facts)

    candidates = [run for run in runs if not run.problem and may_be(run)]
    # Arguments such as --steps change settings that no environment variable shows: there the line alone must do.
    if not only_configs or not any(run.settings for run in candidates):
        return candidates
    expected = {name: value for name, value in effective_settings(submission).items() if value is not None}

    def has_settings(run: Run) -> bool:
        by_name = run.record.submission is not None  # a recorded line has the paths whole
        both = expected.keys() & run.settings.keys()
        return all(_same(run.settings[name], expected[name], by_name) for name in both)

    return list(filter(has_settings, candidates))


def effective_settings(submission: Submission) -> dict[str, Any]:
    """Every setting the submission would run with now: its own, those of env_vars.sh, the defaults.

    Raises:
        InputError: env_vars.sh cannot be read by bash.
    """
    environment, default_of = _environment(submission), defaults()
    names = {*known_settings(submission.exercise), *default_of} - OPERATIONAL
    return {name.lower(): environment.get(name) or default_of.get(name) for name in names}


def read_as_job(submission: Submission) -> tuple[Settings, Configuration | None]:
    """The line's settings and its configuration, if there is one. Raises InputError for what its job would refuse."""
    exercise, config, environment = submission.exercise, submission.config_path, _environment(submission)
    environment |= {"LAUNCHER": submission.launcher, "LAUNCHER_ARGUMENTS": shlex.join(submission.arguments)}
    environment |= {"CONFIG": str(config or ""), "RUN_DIR": "made by the job"}
    try:
        start = Start.of(environment, exercise)
        settings = settings_class(exercise).from_environment(environment, exercise / "env_vars.sh", start)
        return settings, check_configuration(settings)
    except InputError as error:
        raise InputError(f"{submission.place}: {error}") from None


def _environment(submission: Submission) -> dict[str, str]:
    given = submission.settings | submission.takes.settings_among(submission.arguments)
    variables = {"NNODES": str(submission.count("nodes")), "NPROC_PER_NODE": str(submission.count("gpus-per-node"))}
    variables["REPO"] = str(repository_of(submission.exercise))
    variables |= {name: value for name, value in given.items() if value}  # what is set but empty counts as not set
    return _read_once(submission.exercise / "env_vars.sh", variables) | variables


def _read_once(file: Path, variables: Mapping[str, str]) -> dict[str, str]:
    """The file's settings, for all lines with the same values of the variables that it reads beside those it sets."""
    words = re.findall(r"\w+", _NOT_READ.sub("", "\n".join(utf8_lines(file))))
    return _read(
        file, file.stat().st_mtime_ns, tuple(sorted((name, variables[name]) for name in {*words} & {*variables}))
    )


@cache
def _read(file: Path, _: int, variables: tuple[tuple[str, str], ...]) -> dict[str, str]:
    return sourced(file, dict(variables))


def _same(recorded: Any, expected: Any, by_name: bool) -> bool:
    """Whether a value of run.json is what the text `expected` means.

    Args: by_name: a path's last part, which run.json keeps, is enough; else its folder is unknown.
    """
    if isinstance(recorded, bool):
        return recorded == (str(expected).lower() in ("true", "1"))
    if isinstance(recorded, int | float):
        try:
            return float(expected) == recorded
        except ValueError:
            return False
    return str(recorded) in (str(expected), Path(str(expected)).name if by_name else None)
