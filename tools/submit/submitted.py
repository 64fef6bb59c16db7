"""Finds the runs of a submission by what run.json records, not in a list that could be wrong."""

import shlex
from collections.abc import Sequence

from tools.errors import InputError
from tools.logs.run import SHOWN_STATES, Run
from tools.submit.submissions import OPERATIONAL, Submission
from workshop.record.exercises import Start, repository_of
from workshop.settings.configuration import Configuration, check_configuration, settings_class
from workshop.settings.env_file import sourced
from workshop.settings.settings import Settings

STATES = ("missing", "queued", *SHOWN_STATES)


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
    expected = read_as_job(submission)[0].as_record()
    compared = expected.keys() - {name.lower() for name in OPERATIONAL}
    return [
        run for run in candidates if all(run.settings[name] == expected[name] for name in compared & {*run.settings})
    ]


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
    return sourced(submission.exercise / "env_vars.sh", variables) | variables
