"""What has become of a submission: found in the runs' evidence, never in a list of its own that could be wrong."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from run_folder.env_file import sourced
from run_folder.settings import defaults
from tools.logs.run import SHOWN_STATES, Run
from tools.submit.submissions import OPERATIONAL, Submission, known_settings

STATES = ("missing", "queued", *SHOWN_STATES)


def runs_of(submission: Submission, runs: Sequence[Run]) -> list[Run]:
    """The runs that are this submission, also if started by hand or before an edit of submit.txt.

    What a run records about itself decides: its `submission`, and every setting it used. So a tiny run does not count
    as the real one, nor does a run from before an edit of a setting in env_vars.sh.
    """
    candidates = [run for run in runs if not run.problem and _maybe(submission, run)]
    # Arguments such as --steps change settings that no environment variable shows: there the line alone must do.
    if not _only_configs(submission) or not any(run.settings for run in candidates):
        return candidates
    expected = {name: value for name, value in effective_settings(submission).items() if value is not None}

    def has_them(run: Run) -> bool:
        recorded = run.settings
        by_line = run.record.submission is not None  # which has the paths whole
        return all(_same(recorded[name], expected[name], by_line) for name in recorded.keys() & expected.keys())

    return list(filter(has_them, candidates))


def _maybe(submission: Submission, run: Run) -> bool:
    record = run.record
    if record.exercise != submission.exercise.name:
        return False
    if record.submission is not None:
        return record.submission == submission.text
    # Started by hand. Without its settings, which rank 0 writes, nobody can say what it was.
    configs = [Path(argument).stem for argument in submission.arguments if argument.endswith(".json")]
    shape = (submission.count("nodes"), submission.count("gpus-per-node"))
    same_config = record.config in configs if configs else record.config in (None, "ds_config")
    same_shape = (record.nodes, record.gpus_per_node) == shape
    return bool(run.settings) and _only_configs(submission) and same_config and same_shape


def _only_configs(submission: Submission) -> bool:
    return all(argument.endswith(".json") for argument in submission.arguments)


def effective_settings(submission: Submission) -> dict[str, Any]:
    """Every setting the submission would run with now: its own, those of env_vars.sh, the defaults.

    Raises:
        InputError: env_vars.sh cannot be read by bash.
    """
    shape = {"NNODES": str(submission.count("nodes")), "NPROC_PER_NODE": str(submission.count("gpus-per-node"))}
    settings = shape | {"REPO": str(submission.exercise.parent)} | submission.settings
    environment = sourced(submission.exercise / "env_vars.sh", settings)
    default_of = defaults()
    names = {*known_settings(submission.exercise), *default_of} - OPERATIONAL
    return {name.lower(): environment.get(name) or default_of.get(name) for name in names}


def _same(recorded: Any, expected: Any, by_name: bool) -> bool:
    """Whether a value of run.json is what the text `expected` means.

    Args: by_name: a path's last part, which run.json keeps, is enough; else nobody knows which folder it was in.
    """
    if isinstance(recorded, bool):
        return recorded == (str(expected).lower() in ("true", "1"))
    if isinstance(recorded, int | float):
        try:
            return float(expected) == recorded
        except ValueError:
            return False
    return str(recorded) in (str(expected), Path(str(expected)).name if by_name else None)
