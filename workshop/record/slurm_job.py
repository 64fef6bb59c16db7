"""What SLURM says of a job."""

import os
import re
import shutil
import subprocess
from collections.abc import Sequence


def available() -> bool:
    return shutil.which("sbatch") is not None


def output_of(command: Sequence[str]) -> str:
    """Return what a command of SLURM prints; nothing without SLURM, or when it is silent."""
    try:
        return subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=20).stdout
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return ""


def job_line(job: str) -> str:
    """Return a job's line; for an array's last task scontrol lists all tasks, this one first."""
    return output_of(["scontrol", "show", "job", job, "--oneliner"]).partition("\n")[0]


def queued_again(job: str | None) -> bool:
    """Whether SLURM starts this job once more; the job itself can ask before its end."""
    if not job:
        return False
    line = job_line(job)
    starts = os.environ.get("SLURM_RESTART_COUNT") if os.environ.get("SLURM_JOB_ID") == job else None
    counted = re.search(r"\bJobState=COMPLETING\b.* Restarts=(\d+)", line)  # before SLURM has ended it
    return "JobState=PENDING" in line or bool(counted and int(counted[1]) > int(starts or 0))
