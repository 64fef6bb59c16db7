"""Open run.json at a run's start, and find out and record how the run ended."""

import json
import re
import shutil
import socket
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from workshop.record.causes import CRASHES, cause, signal_name
from workshop.record.checkpoints import remove_unfinished, step_of
from workshop.record.control import Control
from workshop.record.exercises import Start
from workshop.record.redaction import diff_without_keys
from workshop.record.run_record import (
    STACKS,
    add_to_summary,
    last_step,
    read_run_record,
    read_summary,
    update_run_record,
)
from workshop.record.schema import VERSION
from workshop.record.slurm_job import job_line

RESERVE = ".reserve"  # room for the end of run.json on a disk that is full by then
RESERVE_BYTES = 64 << 10
NOT_BEGUN = "SIGUSR1 before the training, or its next attempt, had begun"
NO_END = "the training did not reach its end: its launcher was killed, or train.py does not call end_run"
# Failures that count even after a stop signal, by their names in causes.py
CAUSES_DESPITE_SIGNAL = ("disk full", "CUDA error", "hang")
# `scontrol show job` says so why SLURM ends a job; JobState is then only COMPLETING.
SLURM_REASONS = {
    "timeout": r"\bReason=TimeLimit\b",
    "preempted": r"\bPreemptTime=\d",
    "oom": r"\b(?:Reason|JobState)=(?:OutOfMemory|OUT_OF_MEMORY)\b",
}

# How faulthandler begins the stacks of a rank that reached its limit; others were ended by SIGTERM.
_STACKS_AT_LIMIT = re.compile(r"^Timeout \((\d+):(\d\d):(\d\d)", re.MULTILINE)


def code_version() -> tuple[str | None, bool | None, str]:
    """Return the commit, whether the code differs from it, and the diff without keys; of a snapshot, its own."""
    code = Path(__file__).resolve().parents[2]
    if (code / "snapshot.json").exists():  # made by `python -m tools submit`; it may lie inside another checkout
        facts = json.loads((code / "snapshot.json").read_text())
        diff = (code / "code.diff").read_text(errors="replace") if (code / "code.diff").exists() else ""
        return facts["git_commit"], facts["git_dirty"], diff
    git = ["git", "-C", str(code)]
    commit = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True)
    if commit.returncode:
        return None, None, ""
    dirty = subprocess.run([*git, "diff", "--quiet", "HEAD"], capture_output=True).returncode != 0
    return commit.stdout.strip(), dirty, diff_without_keys(code)


def begin(run_dir: Path, environ: Mapping[str, str], command: list[str], checkpoint: str = "") -> None:
    """Open run.json for a run, or for its next attempt from `checkpoint`. Args: environ: of the job."""
    record, now = read_run_record(run_dir), datetime.now(UTC).isoformat(timespec="seconds")
    if "start_time" in record:
        attempts = [*(record.get("attempts") or []), _ended_attempt(run_dir, environ, record, checkpoint)]
        changes = {"attempts": attempts} | dict.fromkeys(("cause", "reason", "exit_code", "end_time"))
        if (run_dir / STACKS).exists():
            (run_dir / STACKS).rename(run_dir / f"{STACKS}-{len(attempts)}")
        kept = {key: value for key, value in read_summary(run_dir).items() if key.endswith(("_by_step", "_before"))}
        (run_dir / "summary.json").unlink(missing_ok=True)  # its other figures are of the attempt that ended
        if kept:
            add_to_summary(run_dir, kept)
    else:
        changes = {"start_time": now}
    start, (commit, dirty, diff) = Start.of(environ), code_version()
    if diff:
        (run_dir / "code.diff").write_text(diff)
    (run_dir / RESERVE).write_bytes(bytes(RESERVE_BYTES))
    Control(run_dir).say("starting")
    update_run_record(
        run_dir,
        version=VERSION,
        exercise=Path(environ["EXERCISE_DIR"]).name,
        experiment=environ["EXPERIMENT_NAME"],
        config=Path(environ["CONFIG"]).stem or None,
        command=command,
        host=socket.gethostname(),
        nodes=start.nodes,
        gpus_per_node=start.gpus_per_node,
        slurm_job_id=start.job or None,
        launcher=start.launcher or None,
        **({"submission": environ["SUBMISSION"]} if environ.get("SUBMISSION") else {}),
        git_commit=commit,
        git_dirty=dirty,
        git_diff=diff[:20_000],
        **changes,
        attempt_start_time=now,
        oom_kills_before=kernel_oom_kills(),
        state="running",
    )


def _ended_attempt(
    run_dir: Path, environ: Mapping[str, str], record: dict[str, Any], checkpoint: str
) -> dict[str, Any]:
    """Return an entry for `attempts`, with the steps that a resumption from `checkpoint` loses."""
    saved, reason = Control(run_dir).read().saved, record.get("reason") or ""
    if saved and "was saved" not in reason:  # the launcher was killed before it could say so
        record["reason"] = f"{reason or 'told to end'}: checkpoint-{saved} was saved"
    if record.get("state", "running") == "running":  # nobody was left to write it down
        record["state"] = slurm_state(environ) or "failed"
        record["reason"] = "nothing says how this attempt ended: its node failed, or its launcher was killed"
    step = last_step(run_dir)
    begun = record.get("attempt_start_time") or record["start_time"]
    return {
        **{key: record.get(key) for key in ("state", "cause", "reason", "exit_code", "end_time")},
        "start_time": begun,
        "last_step": step,
        "last_step_s": (run_dir / "steps.csv").stat().st_mtime if step else datetime.fromisoformat(begun).timestamp(),
        "resumed_step": step_of(checkpoint),
        "steps_lost": step - step_of(checkpoint),
    }


def kernel_oom_kills(root: Path = Path("/")) -> int:
    """Return how many processes of this control group (job, container) the kernel killed for lack of memory.

    0 where it does not say. Other jobs on the node do not count.
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


def slurm_state(environ: Mapping[str, str]) -> str:
    """Return why SLURM is ending this job, which it records before it sends the signal; "": it does not say."""
    start = Start.of(environ)
    answer = job_line(start.job) if start.job else ""
    for state, reason in SLURM_REASONS.items():
        if re.search(reason, answer):
            return state
    # SLURM counts a requeue (a preemption, `scontrol requeue`) before it ends the job.
    restarts = re.search(r"\bRestarts=(\d+)", answer)
    return "preempted" if restarts and int(restarts[1]) > start.requeues else ""


def hang_of(run_dir: Path) -> str:
    """Return `hang: rank N, no progress for S s after step K`; "" if no rank of the last attempt reached its limit.

    N reached it first, and may have waited for another: see all stacks. Stopped and killed ranks leave no stack.
    """
    files = sorted(run_dir.glob(f"{STACKS}/rank-*.txt"), key=lambda file: file.stat().st_mtime)
    silent = [f"; no stack from {file.stem.replace('-', ' ')}" for file in files if not file.stat().st_size]
    for file in files:
        if limit := _STACKS_AT_LIMIT.search(file.read_text(errors="replace")):
            limit_s = int(limit[1]) * 3600 + int(limit[2]) * 60 + int(limit[3])
            rank, step = file.stem.replace("-", " "), last_step(run_dir)
            return "".join([f"hang: {rank}, no progress for {limit_s} s after step {step}", *silent])
    return ""


def outcome(
    run_dir: Path, environ: Mapping[str, str], exit_code: int, signal: str, by_itself: bool = False, oom_kills: int = 0
) -> dict[str, str]:
    """Return state, cause and reason of a training that has ended.

    Only the training's own mark makes it completed: `deepspeed` returns 0 after its launch.py was killed.

    Args:
        signal: for which the launcher ended it, or "".
        by_itself: the launcher did not end it; it may have died in the save that a stop request asked for.
        oom_kills: processes that the kernel killed on this node for lack of memory.
    """
    said = Control(run_dir).read()
    if said.finished:
        return _ended("completed", "")
    if saved := said.saved:
        told = {"USR1": "timeout", "INT": "cancelled", "HUP": "cancelled"}.get(signal)
        state = slurm_state(environ) or told or ("cancelled" if Start.of(environ).job else "preempted")
        return _ended(state, f"SIG{signal or 'TERM'}: checkpoint-{saved} was saved, then the training ended")
    if signal == "USR1":
        return _ended(slurm_state(environ) or "timeout", NOT_BEGUN)
    hang, output = hang_of(run_dir), run_dir / "train.out"
    failure = cause(output) if output.is_file() else None
    # SLURM's SIGTERM may have reached the ranks, too: only failures that it cannot cause count.
    died = hang or (
        failure and (failure.state == "oom" or failure.rank_killed or failure.name in CAUSES_DESPITE_SIGNAL)
    )
    if signal and not (by_itself and died):
        return _ended(slurm_state(environ) or "cancelled", f"the launcher received SIG{signal}")
    if failure and failure.state == "oom":
        return _ended("oom", failure.text, failure.name)
    if hang and not (failure and failure.name in ("CUDA error", "disk full", "node failure")):  # the others then wait
        return _ended("failed", hang, "hang")
    # srun's code is the highest of its tasks': the killed one may be the last to end, after another had failed.
    if (failure and failure.rank_killed) or (exit_code == 137 and not (failure and failure.task_failed)):
        if oom_kills or slurm_state(environ) == "oom":
            return _ended("oom", "the kernel killed a process on this node: no CPU memory left", "host memory")
        if failure and failure.rank_killed:
            return _ended("failed", f"a rank was killed (SIGKILL), and not by the launcher: {failure.text}")
        return _ended("failed", "a rank or its launcher was killed (SIGKILL), and not by the supervisor")
    if failure:
        return _ended(failure.state, failure.text, failure.name)
    if exit_code == 0:
        return _ended("failed", f"exit code 0, but {NO_END}")
    ended_by = signal_name(exit_code - 128)
    how = f"exit code {exit_code}, {ended_by}," if ended_by else f"exit code {exit_code}"
    crash = ended_by if exit_code - 128 in CRASHES else ""
    return _ended("failed", f"{how} without an error message in train.out", crash)


def _ended(state: str, reason: str, cause: str = "") -> dict[str, str]:
    return {"state": state, "cause": cause, "reason": reason}


def record_end(
    run_dir: Path,
    environ: Mapping[str, str],
    exit_code: int,
    signal: str,
    over: bool = True,
    by_itself: bool = False,
) -> dict[str, str]:
    """Record how the run ended; return state, cause and reason.

    Args:
        over: no process of the training is alive; else it may be saving its last checkpoint.
        by_itself: see `outcome`.
    """
    full = shutil.disk_usage(run_dir).free < RESERVE_BYTES
    (run_dir / RESERVE).unlink(missing_ok=True)
    if over:
        remove_unfinished(run_dir / environ.get("OUTPUT_DIR", ""))
    kills, record = kernel_oom_kills(), read_run_record(run_dir)
    kills -= record.get("oom_kills_before", kills)
    said = Control(run_dir).read()
    if full and by_itself and said.told and not said.saved:
        signal = ""  # it died in its save; a full disk has no room to say so in train.out
    ended = outcome(run_dir, environ, exit_code, signal, by_itself, max(0, kills))  # a step's group goes with it
    if full and ended["state"] == "failed":  # also where train.out had no room for the error
        ended |= {"cause": "disk full", "reason": ended["reason"] or "no space left where the run folder lies"}
    end_time = datetime.now(UTC).isoformat(timespec="seconds")
    exit_code = 0 if ended["state"] == "completed" else exit_code or 1
    exercise = Path(environ.get("EXERCISE_DIR", run_dir.parent)).name
    least = {} if "start_time" in record else {"exercise": exercise, "start_time": end_time}  # it was damaged meanwhile
    update_run_record(run_dir, **least, **ended, exit_code=exit_code, end_time=end_time)
    return ended
