"""submit.txt and other lists of runs: one per line, as one would type it.

    MODEL_NAME=bigscience/bloom-3b TRAIN_SIZE=10000 --mem=200G deepspeed.slurm ds_configs/zero3_offload.json
    settings                                        options    launcher        its arguments

Settings and options may be left out. In a list outside the exercises' folders a launcher is written with its exercise,
as in fsdp/multi_gpu.slurm.
"""

import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from workshop.record.errors import LogError, utf8_lines

MUST_DO = "must-do"  # in the comment of a line that every participant is to run
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_OPTION = re.compile(r"--([a-z][a-z-]*)(?:=(.*))?", re.DOTALL)


@dataclass(frozen=True)
class RunLine:
    """A line; `number` counts from 1, None: it is an argument of a command."""

    number: int | None
    written: str
    settings: dict[str, str]
    options: tuple[str, ...]
    launcher: str
    arguments: tuple[str, ...]

    @property
    def must_do(self) -> bool:
        return MUST_DO in self.written.partition("#")[2]


def read_lines(path: Path) -> list[RunLine]:
    """Return the lines of a list. Raises LogError for a line that is no run, or a list without any."""
    numbered = [(number, line.strip()) for number, line in enumerate(utf8_lines(path), start=1)]
    lines = [read_line(line, path, number) for number, line in numbered if line and not line.startswith("#")]
    if not lines:
        raise LogError(path, None, "no run", "a line as fsdp/multi_gpu.slurm")
    return lines


def read_line(line: str, path: Path | str, number: int | None = None) -> RunLine:
    """Return a line's parts. Raises LogError, which names the path."""
    try:
        words = shlex.split(line, comments=True)
    except ValueError as error:
        raise LogError(path, number, line, f"a shell line ({error})") from error
    settings, options = dict[str, str](), []
    while words and (match := _ASSIGNMENT.fullmatch(words[0])):
        settings[match[1]] = match[2]
        words.pop(0)
    if words and words[0] in ("sbatch", "bash"):  # a line as the READMEs have it
        words.pop(0)
    while words and words[0].startswith("-"):
        if not _OPTION.fullmatch(words[0]):
            raise LogError(path, number, words[0], "an sbatch option as --name=value")
        options.append(words.pop(0))
    return RunLine(number, line, settings, tuple(options), "".join(words[:1]), tuple(words[1:]))


def by_name(options: Iterable[str]) -> dict[str, str]:
    """Return the values of sbatch's options; the last one of a name counts, as it does for sbatch."""
    matches = filter(None, map(_OPTION.fullmatch, options))
    return {match[1]: match[2] for match in matches if match[2]}
