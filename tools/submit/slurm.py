"""The SLURM commands that submitting needs."""

import getpass
import hashlib
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from math import inf
from pathlib import Path

from tools.errors import InputError
from tools.submit.submissions import Submission
from workshop.settings.env_file import sourced
from workshop.settings.run_lines import by_name

_MARK = "shardlab:"  # begins the comment by which a job is known again in the queue
_STATES = "PENDING,CONFIGURING,RUNNING,SUSPENDED,REQUEUED"  # not COMPLETING: its run.json already says how it ended


def mark(submission: Submission, logs: Path) -> str:
    """A job comment that identifies a submission and its logs folder."""
    text = "\0".join([str(logs), submission.exercise.name, submission.text])
    return _MARK + hashlib.sha256(text.encode()).hexdigest()[:16]


def queue() -> dict[str, str]:
    """State, "queued" or "running", by `mark` of the user's jobs that wait or run.

    Raises:
        InputError: SLURM does not answer; without its queue every line would be queued again.
    """
    command = ["squeue", "--noheader", f"--user={getpass.getuser()}", f"--states={_STATES}", "--format=%T %k"]
    answer = subprocess.run(command, capture_output=True, text=True)
    if answer.returncode != 0:
        raise InputError(f"{' '.join(command)}: {answer.stderr.strip()}; expected SLURM to answer, or use --local")
    jobs = re.findall(rf"^(\S+) +({_MARK}\S+)", answer.stdout, re.MULTILINE)
    return {comment: "running" if state in ("RUNNING", "SUSPENDED") else "queued" for state, comment in jobs}


def minutes(text: str) -> float:
    """SLURM's durations, such as 30, 30:00, 1:00:00 and 1-00:00:00; infinite for a word."""
    if not (parts := re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", text)):
        return inf
    days, first, second, third = (int(part or 0) for part in parts.groups())
    in_hours = parts[1] or parts[4]  # days-hours:minutes:seconds
    return days * 1440 + first * 60 + second + third / 60 if in_hours else first + second / 60


def asked_minutes(line: Submission, site: Mapping[str, str]) -> tuple[str, float]:
    """The line or launcher that sets the job's time limit, and the minutes."""
    if own := by_name(line.options).get("time"):
        return line.place, minutes(own)
    header = re.search(r"^#SBATCH --time=(\S+)", (line.exercise / line.launcher).read_text(), re.MULTILINE)
    limit = site.get("SBATCH_TIMELIMIT") or (header[1] if header else "infinite")
    return f"{line.exercise.name}/{line.launcher}", minutes(limit)


def site_options(root: Path) -> dict[str, str]:
    """The SBATCH_* variables of cluster.env; one that is already set wins."""
    variables = sourced(root / "cluster.env", os.environ) if (root / "cluster.env").is_file() else {}
    return {name: value for name, value in variables.items() if name.startswith("SBATCH_") and name not in os.environ}


def sbatch(options: Sequence[str], command: Sequence[str], environment: Mapping[str, str]) -> str:
    """Queue a job and give its id.

    Raises:
        InputError: sbatch refused it; the message is what it said.
    """
    words = ["sbatch", "--parsable", *options, *command]
    answer = subprocess.run(words, env=environment, capture_output=True, text=True)
    if answer.returncode != 0:
        raise InputError(answer.stderr.strip() or f"sbatch ended with exit code {answer.returncode}")
    return answer.stdout.strip().splitlines()[-1].split(";")[0]
