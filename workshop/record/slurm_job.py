"""What SLURM says of a job."""

import subprocess
from collections.abc import Sequence


def output_of(command: Sequence[str]) -> str:
    """Return what a command of SLURM prints; nothing without SLURM, or when it is silent."""
    try:
        return subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=20).stdout
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return ""


def job_line(job: str) -> str:
    """Return a job's line; for an array's last task scontrol lists all tasks, this one first."""
    return output_of(["scontrol", "show", "job", job, "--oneliner"]).partition("\n")[0]
