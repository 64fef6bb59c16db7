"""How a run ended: state, cause and reason, told apart by evidence, into run.json."""

import os
import re
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path

from run_folder.causes import cause
from workshop.job.checkpoints import remove_unfinished
from workshop.job.control import Control
from workshop.job.run_record import RESERVE, RESERVE_BYTES, STACKS, last_step, read_run_record, update_run_record

# Of run_folder/causes.py: what a training dies of that was told to end, and not because of the signal.
OWN_CAUSES = ("disk full", "CUDA error", "hang")

# Fields of `scontrol show job` that tell why SLURM ends a job, whose JobState is then only COMPLETING.
SLURM_REASONS = (
    ("timeout", re.compile(r"\bReason=TimeLimit\b")),
    ("preempted", re.compile(r"\bPreemptTime=\d")),
    ("oom", re.compile(r"\b(?:Reason|JobState)=(?:OutOfMemory|OUT_OF_MEMORY)\b")),
)
# How faulthandler begins the stacks of a rank that reached its limit; others were ended by SIGTERM.
_STACKS_AT_LIMIT = re.compile(r"^Timeout \(([\d:]+)", re.MULTILINE)


def kernel_oom_kills(root: Path = Path("/")) -> int:
    """Processes that the kernel has killed because memory ran out, of this process's control group (a job's, a
    container's); 0 where it does not say. Another job of the node may run out of memory, too.
    """
    files: list[Path] = []
    for line in (root / "proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        group = re.sub(r"(/job_\d+)/.*", r"\1", path).lstrip("/")  # srun's steps are no part of the batch step's group
        if not controllers:
            files.append(root / "sys/fs/cgroup" / group / "memory.events")
        elif "memory" in controllers.split(","):  # version 1, where each group counts its own alone
            files += (root / "sys/fs/cgroup/memory" / group).rglob("memory.oom_control")
    texts = [file.read_text() for file in files if file.exists()]
    return sum(int(kills) for text in texts for kills in re.findall(r"^oom_kill (\d+)", text, re.MULTILINE))


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


def hang_of(run_dir: Path) -> str:
    """`hang: rank-N, no progress for H:MM:SS after step K`; empty if no rank of the last attempt reached its limit.

    N reached it first, and may have waited for another: see all stacks. Ranks that were stopped or killed left none.
    """
    files = sorted(run_dir.glob(f"{STACKS}/rank-*.txt"), key=lambda file: file.stat().st_mtime)
    for file in files:
        if limit := _STACKS_AT_LIMIT.search(file.read_text(errors="replace")):
            line = f"hang: {file.stem}, no progress for {limit[1]} after step {last_step(run_dir)}"
            return "; no stack from ".join([line, *(other.stem for other in files if not other.stat().st_size)])
    return ""


def outcome(run_dir: Path, exit_code: int, signal: str, oom_kills: int = 0) -> dict[str, str]:
    """State, cause and reason of a training that ended with `exit_code` after the launcher received `signal` (or none),
    while the kernel killed `oom_kills` processes on this node because memory ran out.
    """
    if exit_code == 0:
        return _ended("completed", "")
    if saved := Control(run_dir).saved:
        others = "cancelled" if signal == "INT" or "SLURM_JOB_ID" in os.environ else "preempted"
        state = slurm_state() or ("timeout" if signal == "USR1" else others)
        return _ended(state, f"SIG{signal or 'TERM'}: checkpoint-{saved} was saved, then the training ended")
    hang, found = hang_of(run_dir), cause(run_dir / "train.out")
    # It may have died while it saved because it was told to end: only what SIGTERM cannot bring about counts.
    died = hang or (found and (found.state == "oom" or found.rank_killed or found.name in OWN_CAUSES))
    if signal and signal != "USR1" and not died:
        return _ended(slurm_state() or "cancelled", f"the launcher received SIG{signal}")
    if found and found.state == "oom":
        return _ended("oom", found.text, found.name)
    if hang:
        return _ended("failed", hang, "hang")
    # srun's code is the highest of its tasks': the killed one may be the last to end, after another had failed.
    if (found and found.rank_killed) or (exit_code == 137 and not (found and found.task_failed)):
        if oom_kills or slurm_state() == "oom":
            return _ended("oom", "the kernel killed a process on this node: no CPU memory left", "host memory")
        launcher_says = f": {found.text}" if found and found.rank_killed else ""
        return _ended("failed", f"a rank was killed (SIGKILL), and not by the launcher{launcher_says}")
    if found:
        return _ended(found.state, found.text, found.name)
    return _ended("failed", f"exit code {exit_code} without an error message in train.out")


def _ended(state: str, reason: str, cause: str = "") -> dict[str, str]:
    return {"state": state, "cause": cause, "reason": reason}


def record_end(run_dir: Path, exit_code: int, signal: str, over: bool = True) -> dict[str, str]:
    """Write down how the run ended; state, cause and reason.

    Args: over: no process of the training lives; else it may be saving its last checkpoint.
    """
    full = shutil.disk_usage(run_dir).free < RESERVE_BYTES
    (run_dir / RESERVE).unlink(missing_ok=True)
    if over:
        remove_unfinished(run_dir / os.environ.get("OUTPUT_DIR", ""))
    kills = kernel_oom_kills() - read_run_record(run_dir).get("oom_kills_before", 0)
    control = Control(run_dir)
    if full and control.told and not control.saved:
        signal = ""  # it died while it saved, and train.out may have had no room to say so
    ended = outcome(run_dir, exit_code, signal, max(0, kills))  # a step's group goes with it
    if full and ended["state"] == "failed":  # also where train.out had no room for the error
        ended |= {"cause": "disk full", "reason": ended["reason"] or "no space left where the run folder lies"}
    end_time = datetime.now(UTC).isoformat(timespec="seconds")
    update_run_record(run_dir, **ended, exit_code=exit_code, end_time=end_time)
    return ended
