"""What waits in SLURM's queue, and why."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass

from tools.tables.repository import ROOT

_FORMAT = "%i|%u|%j|%r|%S"


@dataclass(frozen=True)
class Waiting:
    """A job: its id, whose it is, its name, squeue's reason, and when SLURM expects to start it (N/A: not known)."""

    job: str
    owner: str
    name: str
    reason: str
    start: str


def waiting() -> list[Waiting]:
    """Everybody's jobs with the names of this repository's launchers; none without SLURM, or when it is silent."""
    if shutil.which("squeue") is None:
        return []
    names = {
        name
        for path in ROOT.glob("*/*.slurm")
        for name in re.findall(r"^#SBATCH --job-name=(\S+)", path.read_text(), re.MULTILINE)
    }
    command = ["squeue", "--noheader", "--states=PENDING", f"--name={','.join(sorted(names))}", f"--format={_FORMAT}"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=20)
    except subprocess.TimeoutExpired:
        return []
    rows = [line.split("|") for line in answer.stdout.splitlines()]
    return [Waiting(*row) for row in rows if len(row) == 5]
