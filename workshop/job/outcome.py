"""How a run ended: state, cause and reason, told apart by evidence, into run.json."""

import os
import re
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path

from run_folder.causes import cause
from run_folder.plural import counted
from workshop.job.checkpoints import remove_unfinished
from workshop.job.control import Control
from workshop.job.hang_report import write_hang
from workshop.job.run_record import RESERVE, RESERVE_BYTES, read_run_record, update_run_record

NOTICE = "timeout"  # SIGUSR1 is what the launchers ask SLURM for, some time before the time limit (#SBATCH --signal)
NOT_BEGUN = "SIGUSR1 before the training, or its next attempt, had begun"
# Of run_folder/causes.py: what a training dies of that was told to end, and not because of the signal.
OWN_CAUSES = ("disk full", "CUDA error", "hang")

# Fields of `scontrol show job` that tell why SLURM ends a job, whose JobState is then only COMPLETING.
SLURM_REASONS = (
    ("timeout", re.compile(r"\bReason=TimeLimit\b")),
    ("preempted", re.compile(r"\bPreemptTime=\d")),
    ("oom", re.compile(r"\b(?:Reason|JobState)=(?:OutOfMemory|OUT_OF_MEMORY)\b")),
)


def kernel_oom_kills(root: Path = Path("/")) -> int:
    """Processes that the kernel has killed because memory ran out: of this process's control group (a job's, a
    container's), else of the whole node since it started, where another job's count too; 0 where it does not say.
    """
    counters = [[root / "proc/vmstat"]]
    groups, mounted = root / "proc/self/cgroup", root / "sys/fs/cgroup"
    for line in groups.read_text().splitlines() if groups.exists() else []:
        _, controllers, path = line.split(":", 2)
        job = re.sub(r"(/job_\d+)/.*", r"\1", path)  # of SLURM: srun's steps are no part of the batch step's group
        if "memory" in controllers.split(","):  # version 1, where each group counts its own alone
            own = mounted / f"memory{job}"
            if not own.exists():
                own, job = mounted / "memory", ""  # what a container sees of its own
            counters.insert(0, [*own.rglob("memory.oom_control")] if "/job_" in job else [own / "memory.oom_control"])
        elif not controllers:
            counters.insert(0, [mounted / job.lstrip("/") / "memory.events"])
    for files in counters:
        texts = [file.read_text() for file in files if file.exists()]
        if kills := [int(found[1]) for text in texts if (found := re.search(r"^oom_kill (\d+)", text, re.MULTILINE))]:
            return sum(kills)
    return 0


def slurm_state() -> str | None:
    """Why SLURM is ending this job, which it writes down before it sends the signal; None: it does not say."""
    job = os.environ.get("SLURM_JOB_ID")
    if not job:
        return None
    answer = subprocess.run(["scontrol", "show", "job", job, "--oneliner"], capture_output=True, text=True, check=False)
    state = next((state for state, reason in SLURM_REASONS if reason.search(answer.stdout)), None)
    # SLURM queues it again (a preemption, `scontrol requeue`), and has counted that already.
    restarts = re.search(r"\bRestarts=(\d+)", answer.stdout)
    again = restarts and int(restarts[1]) > int(os.environ.get("SLURM_RESTART_COUNT") or 0)
    return state or ("preempted" if again else None)


def outcome(
    exit_code: int, signal: str, output: Path, oom_kills: int = 0, stopped: str = "", by_itself: bool = False
) -> dict[str, str]:
    """State, cause and reason of a training that ended with `exit_code` after the launcher received `signal` (or none),
    while the kernel killed `oom_kills` processes on this node because memory ran out.

    Args:
        stopped: the step after which the training saved and ended because it was told to; empty: it was not.
        by_itself: the launcher has not ended it. It may have died while it saved because it was told to end.
    """

    def ended(state: str, cause: str, reason: str) -> dict[str, str]:
        return {"state": state, "cause": cause, "reason": reason}

    if stopped:
        if signal == "INT":
            state = "cancelled"
        else:
            last = "cancelled" if os.environ.get("SLURM_JOB_ID") else "preempted"
            state = slurm_state() or (NOTICE if signal == "USR1" else last)
        return ended(state, "", f"SIG{signal or 'TERM'}: checkpoint-{stopped} was saved, then the training ended")
    if exit_code == 0:
        return ended("completed", "", "")
    if signal == "USR1" and exit_code == 143:  # the launcher's own code for it
        return ended(slurm_state() or NOTICE, "", NOT_BEGUN)
    found = cause(output) if output.exists() else None
    # SLURM's SIGTERM may have come to the ranks, too: only what it cannot bring about counts as theirs.
    died = by_itself and found and (found.state == "oom" or found.rank_killed or found.name in OWN_CAUSES)
    if signal and signal != "USR1" and not died:
        return ended(slurm_state() or "cancelled", "", f"the launcher received SIG{signal}")
    if found and (found.state == "oom" or found.name == "hang"):
        return ended(found.state, found.name, found.text)
    rank_killed = found is not None and found.rank_killed
    if exit_code == 137 or rank_killed:
        if oom_kills or slurm_state() == "oom":
            killed = counted(oom_kills, "process", "processes") if oom_kills else "a process"
            return ended("oom", "host memory", f"the kernel killed {killed} on this node: no CPU memory left")
        if rank_killed:
            return ended("failed", "", f"a rank was killed (SIGKILL), and not by the launcher: {found.text}")
        # srun's code is the highest of its tasks': the killed one may be the last to end, after another had failed.
        if not (found and found.task_failed):
            return ended("failed", "", "the training was killed (SIGKILL), and not by the launcher")
    if found:
        return ended(found.state, found.name, found.text)
    return ended("failed", "", f"exit code {exit_code} without an error message in train.out")


def record_end(
    run_dir: Path, exit_code: int, signal: str, over: bool = True, by_itself: bool = False
) -> dict[str, str]:
    """Write down how the run ended; state, cause and reason.

    Args:
        over: no process of the training lives; else it may be saving its last checkpoint.
        by_itself: see `outcome`.
    """
    full = shutil.disk_usage(run_dir).free < RESERVE_BYTES
    (run_dir / RESERVE).unlink(missing_ok=True)
    if over:
        remove_unfinished(run_dir / os.environ.get("OUTPUT_DIR", ""))
    kills = kernel_oom_kills()
    kills = max(0, kills - read_run_record(run_dir).get("oom_kills_before", kills))  # a step's group goes with it
    write_hang(run_dir)
    control = Control(run_dir)
    stopped = control.saved if exit_code else ""
    if full and exit_code and control.told and by_itself and not stopped:
        signal = ""  # it died while it saved, and train.out may have had no room to say so
    ended = outcome(exit_code, signal, run_dir / "train.out", kills, stopped, by_itself)
    if full and ended["state"] == "failed":  # also where train.out had no room for the error
        ended |= {"cause": "disk full", "reason": ended["reason"] or "no space left where the run folder lies"}
    end_time = datetime.now(UTC).isoformat(timespec="seconds")
    update_run_record(run_dir, **ended, exit_code=exit_code, end_time=end_time)
    return ended
