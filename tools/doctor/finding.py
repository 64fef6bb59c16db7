"""What a check found, and how checks ask other programs."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from run_folder.printable import one_line

ANSWER_TIMEOUT_S = 60


@dataclass(frozen=True)
class Finding:
    """One line.

    Attributes:
        name: of the check.
        status: ok; warning: something works otherwise than on a cluster, or slower; error: runs will fail.
        text: what was found, and what is expected where it is something else.
        fix: a command, or nothing where all is well.
    """

    name: str
    status: str
    text: str
    fix: str = ""

    def __str__(self) -> str:
        fix = f"  fix: {self.fix}" if self.fix else ""
        return one_line(f"{self.status:8} {self.name:11} {self.text}{fix}")


@dataclass(frozen=True)
class Answer:
    """A program's exit code and output; complaint: the last line of its standard error."""

    code: int
    output: str
    complaint: str


def ask(command: Sequence[str], environment: Mapping[str, str], **options: object) -> Answer:
    """A program that is not there, or does not answer within a minute, is a complaint like any other."""
    try:
        answer = subprocess.run(
            command,
            env=dict(environment),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=options.pop("timeout_s", ANSWER_TIMEOUT_S),
            **options,
        )
    except FileNotFoundError:
        return Answer(127, "", f"{command[0]}: not found")
    except subprocess.TimeoutExpired as error:
        return Answer(124, "", f"{command[0]}: no answer within {error.timeout:.0f} s")
    lines = answer.stderr.strip().splitlines() or [f"{command[0]} ended with exit code {answer.returncode}"]
    return Answer(answer.returncode, answer.stdout, lines[-1])
