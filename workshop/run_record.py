"""run.json: what ran and how it ended. The launcher opens and closes it, the training's rank 0 adds what only it knows.

Needs nothing but the standard library, so that the launcher can record a run whose Python packages are broken.

    python -m workshop.run_record begin RUN_DIR EXERCISE CONFIG -- COMMAND...
    python -m workshop.run_record end RUN_DIR EXIT_CODE [SIGNAL]
"""

import json
import os
import re
import socket
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from evidence.causes import cause
from evidence.schema import VERSION

LONGEST_DIFF = 20_000  # characters of it in run.json

# Fields of `scontrol show job` that tell why SLURM ends a job, whose JobState is then only COMPLETING.
SLURM_REASONS = (
    ("timeout", re.compile(r"\bReason=TimeLimit\b")),
    ("preempted", re.compile(r"\bPreemptTime=\d")),
    ("oom", re.compile(r"\b(?:Reason|JobState)=(?:OutOfMemory|OUT_OF_MEMORY)\b")),
)


def update_run_record(run_dir: Path, **facts: Any) -> None:
    """Add `facts` to run.json. The file is replaced as a whole, so a reader never sees half of it."""
    path = run_dir / "run.json"
    record = json.loads(path.read_text()) if path.exists() else {}
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(record | facts, indent=2) + "\n")
    temporary.replace(path)


def kernel_oom_kills() -> int:
    """Processes that the kernel has killed since this node started because a node or a job had no memory left; 0 where
    it does not say.
    """
    counters = Path("/proc/vmstat")
    kills = re.search(r"^oom_kill (\d+)", counters.read_text(), re.MULTILINE) if counters.exists() else None
    return int(kills[1]) if kills else 0


def slurm_state() -> str | None:
    """Why SLURM is ending this job, which it writes down before it sends the signal; None: it does not say."""
    job = os.environ.get("SLURM_JOB_ID")
    if not job:
        return None
    answer = subprocess.run(["scontrol", "show", "job", job, "--oneliner"], capture_output=True, text=True, check=False)
    return next((state for state, reason in SLURM_REASONS if reason.search(answer.stdout)), None)


def outcome(exit_code: int, signal: str, output: Path, oom_kills: int = 0) -> tuple[str, str]:
    """State and reason of a training that ended with `exit_code` after the launcher received `signal` (or none), while
    the kernel killed `oom_kills` processes on this node because memory ran out.
    """
    if exit_code == 0:
        return "completed", ""
    if signal:
        return slurm_state() or "cancelled", f"the launcher received SIG{signal}"
    found = cause(output) if output.exists() else None
    if found and found.state == "oom":
        return found.state, found.text
    rank_killed = found is not None and found.rank_killed
    if exit_code == 137 or rank_killed:
        if oom_kills or slurm_state() == "oom":
            return "oom", f"the kernel killed {oom_kills or 'some'} process(es) on this node: no CPU memory left"
        if rank_killed:
            return "failed", f"a rank was killed (SIGKILL) by somebody else than this launcher: {found.text}"
        # srun's code is the highest of its tasks': the killed one may be the last to end, after another had failed.
        if not (found and found.task_failed):
            return "failed", "the training was killed (SIGKILL) by somebody else than this launcher"
    return (
        (found.state, found.text)
        if found
        else ("failed", f"exit code {exit_code} without an error message in train.out")
    )


def shortened(diff: str) -> str:
    """`diff` for run.json, which people open: code.diff beside it has all of a long one."""
    return diff if len(diff) <= LONGEST_DIFF else diff[:LONGEST_DIFF] + "\n… the rest is in code.diff\n"


def git(*arguments: str) -> str | None:
    """Output of a git command in this checkout, or None outside one."""
    answer = subprocess.run(
        ["git", "-C", str(Path(__file__).parent), *arguments], capture_output=True, text=True, check=False
    )
    return answer.stdout if answer.returncode == 0 else None


def code_version() -> tuple[str | None, bool | None, str]:
    """Commit, whether anything differed from it, and the difference; of a snapshot, what was true when it was made."""
    code = Path(__file__).resolve().parents[1]
    if (code / "snapshot.json").exists():  # made by `python -m tools submit`; it may lie inside another checkout
        facts = json.loads((code / "snapshot.json").read_text())
        diff = (code / "code.diff").read_text(errors="replace") if (code / "code.diff").exists() else ""
        return facts["git_commit"], facts["git_dirty"], diff
    commit, diff = git("rev-parse", "HEAD"), git("diff", "HEAD")
    return (commit.strip(), bool(diff), diff or "") if commit else (None, None, "")


def begin(run_dir: Path, exercise: str, config: str, command: list[str]) -> None:
    commit, dirty, diff = code_version()
    if diff:
        (run_dir / "code.diff").write_text(diff)
    update_run_record(
        run_dir,
        version=VERSION,
        exercise=exercise,
        experiment=os.environ["EXPERIMENT_NAME"],
        config=Path(config).stem if config else None,
        command=command,
        host=socket.gethostname(),
        nodes=int(os.environ.get("NNODES", "1")),
        gpus_per_node=int(os.environ.get("NPROC_PER_NODE", "1")),
        slurm_job_id=os.environ.get("SLURM_JOB_ID"),
        **({"submission": os.environ["SUBMISSION"]} if os.environ.get("SUBMISSION") else {}),
        git_commit=commit,
        git_dirty=dirty,
        git_diff=shortened(diff),
        start_time=datetime.now(UTC).isoformat(timespec="seconds"),
        oom_kills_before=kernel_oom_kills(),
        state="running",
    )


def end(run_dir: Path, exit_code: int, signal: str) -> None:
    kills = kernel_oom_kills()
    kills -= json.loads((run_dir / "run.json").read_text()).get("oom_kills_before", kills)
    state, reason = outcome(exit_code, signal, run_dir / "train.out", kills)
    end_time = datetime.now(UTC).isoformat(timespec="seconds")
    update_run_record(run_dir, state=state, exit_code=exit_code, reason=reason, end_time=end_time)
    print(f"{state}{': ' + reason if reason else ''}")


def main() -> None:
    verb, run_dir, *rest = sys.argv[1:]
    if verb == "begin":
        exercise, config, _, *command = rest
        begin(Path(run_dir), exercise, config, command)
    else:
        end(Path(run_dir), int(rest[0]), rest[1] if len(rest) > 1 else "")


if __name__ == "__main__":
    main()
