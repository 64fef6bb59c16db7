"""The time limits of launchers and lines beside a partition's: what asks for more waits for ever."""

import re
from collections.abc import Mapping
from contextlib import suppress
from math import ceil, inf

from tools.errors import InputError
from tools.plan.gpus import Gpu
from tools.plan.predict import Prediction
from tools.plan.submitted_lines import MUST_DO, prediction_of
from tools.submit.submissions import Submission, exercise_files, read

# SLURM tells a job two minutes before its limit that it ends: #SBATCH --signal of the launchers.
SIGNAL_MINUTES = 2


def minutes(text: str) -> float:
    """SLURM's durations, such as 30, 30:00, 1:00:00 and 1-00:00:00; infinite for a word."""
    if not (found := re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", text)):
        return inf
    days, first, second, third = (int(part or 0) for part in found.groups())
    if found[1] or found[4]:  # days-hours:minutes:seconds
        return days * 1440 + first * 60 + second + third / 60
    return first + second / 60


def asked(line: Submission, site: Mapping[str, str]) -> tuple[str, float]:
    """What says how long the line's job may take, and the minutes: itself, or SBATCH_TIMELIMIT and its launcher."""
    if own := [option.partition("=")[2] for option in line.options if option.startswith("--time=")]:
        return line.place, minutes(own[-1])
    header = re.search(r"^#SBATCH --time=(\S+)", (line.exercise / line.launcher).read_text(), re.MULTILINE)
    limit = site.get("SBATCH_TIMELIMIT") or (header[1] if header else "infinite")
    return f"{line.exercise.name}/{line.launcher}", minutes(limit)


def too_long(limit_min: float, site: Mapping[str, str]) -> list[str]:
    """The launchers and the lines of the exercises that ask for more time than a partition gives."""
    found = dict(asked(line, site) for line in _lines())
    return [f"{name} ({asked_min:.0f} min)" for name, asked_min in found.items() if asked_min > limit_min]


def minutes_to_ask(found: Prediction) -> int:
    """The limit that a job needs by the largest prediction, with the launcher's signal."""
    return ceil(found.ranges["total_runtime_s"].largest / 60) + SIGNAL_MINUTES


def needed_minutes(gpu: Gpu) -> tuple[int, str]:
    """What the longest must-do line may take by the planner, with the launcher's signal, and where it is."""
    planned: dict[str, Prediction] = {}
    for line in (line for line in _lines() if line.contains(MUST_DO)):
        with suppress(InputError):  # an older GPU without bf16
            if found := prediction_of(line, gpu):
                planned[line.place] = found
    longest = max(planned, key=lambda place: planned[place].ranges["total_runtime_s"].largest)
    return minutes_to_ask(planned[longest]), longest


def _lines() -> list[Submission]:
    return [line for file in exercise_files([]) for line in read(file, {})]
