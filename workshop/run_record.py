"""run.json: what ran and how it ended. The launcher opens and closes it, the training's rank 0 adds what only it knows.

Needs nothing but the standard library, so that the launcher can record a run whose Python packages are broken.

    python -m workshop.run_record begin RUN_DIR EXERCISE CONFIG -- COMMAND...
    python -m workshop.run_record ending RUN_DIR EXIT_CODE SIGNAL    the training still runs, and may be saving
    python -m workshop.run_record end RUN_DIR EXIT_CODE [SIGNAL [ended]]    ended: by the launcher, not by itself
    python -m workshop.run_record reopen RUN_DIR [CHECKPOINT]
"""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from evidence.causes import cause
from evidence.counted import counted
from evidence.schema import VERSION
from evidence.settings import defaults
from workshop.checkpoints import remove_unfinished, step_of
from workshop.job.hang_report import keep_stacks, last_step, write_hang

LONGEST_DIFF = 20_000  # characters of it in run.json
# Files of the run folder. The launcher makes the first, and takes it away if notice comes before the training begins.
# A training that saves when it is told to end renames it to the second; the launcher renames that to the third to tell
# it; the training writes into that one after which step it ended.
STARTS, LISTENS, STOP = ".starts", ".listens", ".stop"
GIVEN = ".settings.json"  # what `python -m tools submit --resume` starts the run with again
NOTICE = "timeout"  # SIGUSR1 is what the launchers ask SLURM for, some time before the time limit (#SBATCH --signal)
NOT_BEGUN = "SIGUSR1 before the training, or its next attempt, had begun"
RESERVE = ".reserve"  # room for the end of run.json on a disk that is full by then
RESERVE_BYTES = 64 << 10
_EXPORT = re.compile(r"^\s*export\s+([A-Z][A-Z0-9_]*)=", re.MULTILINE)

_KEY = re.compile(r"(\b[A-Z][A-Z0-9_]*(?:TOKEN|KEY|PASSWORD|SECRET)['\"]?\]?\s*[=:]\s*)(?:\"[^\"\n]*\"|'[^'\n]*'|\S+)")

# Of evidence/causes.py: what a training dies of that was told to end, and not because of the signal.
OWN_CAUSES = ("disk full", "CUDA error", "hang")

# Fields of `scontrol show job` that tell why SLURM ends a job, whose JobState is then only COMPLETING.
SLURM_REASONS = (
    ("timeout", re.compile(r"\bReason=TimeLimit\b")),
    ("preempted", re.compile(r"\bPreemptTime=\d")),
    ("oom", re.compile(r"\b(?:Reason|JobState)=(?:OutOfMemory|OUT_OF_MEMORY)\b")),
)


def update_run_record(run_dir: Path, **facts: Any) -> None:
    """Add `facts` to run.json. The file is replaced as a whole, so a reader never sees half of it."""
    path = run_dir / "run.json"
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(read_run_record(run_dir) | facts, indent=2) + "\n")
    temporary.replace(path)


def record_settings(settings: Any, listens: bool = False) -> None:
    """The settings into run.json, by one rank, before the model is there: so a run that cannot even hold its model is
    known by them.

    Args:
        listens: the training saves when it is told to end. One that does not is let alone from here on.
    """
    if os.environ.get("RANK", "0") == "0":
        update_run_record(settings.run_dir, settings=settings.as_record())
        if not listens:
            (settings.run_dir / STARTS).unlink(missing_ok=True)


def read_run_record(run_dir: Path) -> dict[str, Any]:
    """run.json; {} without one."""
    path = run_dir / "run.json"
    return json.loads(path.read_text()) if path.exists() else {}


def last_attempt(run_dir: Path) -> dict[str, Any]:
    """What became of the attempt before this one; {} in the first."""
    return (read_run_record(run_dir).get("attempts") or [{}])[-1]


def update_last_attempt(run_dir: Path, **facts: Any) -> None:
    attempts = read_run_record(run_dir)["attempts"]
    update_run_record(run_dir, attempts=[*attempts[:-1], attempts[-1] | facts])


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
            return ended("failed", "", f"a rank was killed (SIGKILL) by somebody else than this launcher: {found.text}")
        # srun's code is the highest of its tasks': the killed one may be the last to end, after another had failed.
        if not (found and found.task_failed):
            return ended("failed", "", "the training was killed (SIGKILL) by somebody else than this launcher")
    if found:
        return ended(found.state, found.name, found.text)
    return ended("failed", "", f"exit code {exit_code} without an error message in train.out")


def shortened(diff: str) -> str:
    """`diff` for run.json, which people open: code.diff beside it has all of a long one."""
    return diff if len(diff) <= LONGEST_DIFF else diff[:LONGEST_DIFF] + "\n… the rest is in code.diff\n"


def without_keys(diff: str) -> str:
    """`diff` without what was assigned to names such as WANDB_API_KEY: people write keys into env_vars.sh."""
    return _KEY.sub(r"\1[left out]", diff)


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


def given_settings() -> dict[str, str]:
    """The settings of this run as env_vars.sh and the shell give them, files with their folders."""
    env_file = Path("env_vars.sh")
    exported = _EXPORT.findall(env_file.read_text()) if env_file.is_file() else []
    names = {*defaults(), *exported} - {"RUN_DIR", "CONFIG", "RESUME_FROM"}
    names = {name for name in names if not re.search("KEY|_TOKEN|SECRET|PASSWORD", name)}
    return {name: os.environ[name] for name in sorted(names) if os.environ.get(name)}


def begin(run_dir: Path, exercise: str, config: str, command: list[str]) -> None:
    commit, dirty, diff = code_version()
    diff = without_keys(diff)
    if diff:
        (run_dir / "code.diff").write_text(diff)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    again = bool(last_attempt(run_dir))
    (run_dir / RESERVE).write_bytes(bytes(RESERVE_BYTES))
    (run_dir / STARTS).touch()
    if not (run_dir / GIVEN).exists():
        (run_dir / GIVEN).write_text(json.dumps(given_settings(), indent=1) + "\n")
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
        **({"launcher": os.environ["LAUNCHER"]} if os.environ.get("LAUNCHER") else {}),
        **({"submission": os.environ["SUBMISSION"]} if os.environ.get("SUBMISSION") else {}),
        git_commit=commit,
        git_dirty=dirty,
        git_diff=shortened(diff),
        **({} if again else {"start_time": now}),
        attempt_start_time=now,
        oom_kills_before=kernel_oom_kills(),
        state="running",
    )


def reopen(run_dir: Path, checkpoint: str) -> None:
    """The run goes on: what became of it so far joins `attempts`, with what is lost if it goes on from `checkpoint`."""
    saved = (run_dir / STOP).read_text().strip() if (run_dir / STOP).exists() else ""
    for name in (STARTS, LISTENS, STOP, "summary.json"):  # which may be cut off
        (run_dir / name).unlink(missing_ok=True)
    record = read_run_record(run_dir)
    keep_stacks(run_dir, attempt=len(record.get("attempts", [])) + 1)
    if not record:
        return
    if saved and "was saved" not in (record.get("reason") or ""):  # the launcher was killed before it could say so
        record["reason"] = f"{record.get('reason') or 'told to end'}: checkpoint-{saved} was saved"
    if record["state"] == "running":  # nobody was left to write it down
        reason = "nothing says how this attempt ended: its node failed, or its launcher was killed"
        record |= {"state": slurm_state() or "failed", "reason": reason}
    step = last_step(run_dir)
    begun = record.get("attempt_start_time") or record["start_time"]
    attempt = {
        **{key: record.get(key) for key in ("state", "cause", "reason", "exit_code", "end_time")},
        "start_time": begun,
        "last_step": step,
        "last_step_s": (run_dir / "steps.csv").stat().st_mtime if step else datetime.fromisoformat(begun).timestamp(),
        "resumed_step": step_of(checkpoint),
        "steps_lost": step - step_of(checkpoint),
    }
    now = dict.fromkeys(("cause", "reason", "exit_code", "end_time")) | {"state": "running"}
    update_run_record(run_dir, **now, attempts=[*record.get("attempts", []), attempt])


def end(run_dir: Path, exit_code: int, signal: str, over: bool = True, by_itself: bool = False) -> None:
    """How the run ended.

    Args:
        over: no process of the training lives; else it may be saving its last checkpoint.
        by_itself: see `outcome`.
    """
    full = shutil.disk_usage(run_dir).free < RESERVE_BYTES
    for name in (RESERVE, STARTS, LISTENS):
        (run_dir / name).unlink(missing_ok=True)
    if over:
        remove_unfinished(run_dir / os.environ.get("OUTPUT_DIR", ""))
    kills = kernel_oom_kills()
    kills = max(0, kills - read_run_record(run_dir).get("oom_kills_before", kills))  # a step's group goes with it
    told = exit_code != 0 and (run_dir / STOP).exists()
    stopped = (run_dir / STOP).read_text().strip() if told else ""
    if full and told and by_itself and not stopped:
        signal = ""  # it died while it saved, and train.out may have had no room to say so
    write_hang(run_dir)
    ended = outcome(exit_code, signal, run_dir / "train.out", kills, stopped, by_itself)
    if full and ended["state"] == "failed":  # also where train.out had no room for the error
        ended |= {"cause": "disk full", "reason": ended["reason"] or "no space left where the run folder lies"}
    end_time = datetime.now(UTC).isoformat(timespec="seconds")
    update_run_record(run_dir, **ended, exit_code=exit_code, end_time=end_time)
    if ended["state"] != "completed":
        print(": ".join(text for text in ended.values() if text))


def main() -> None:
    verb, run_dir, *rest = sys.argv[1:]
    if verb == "begin":
        exercise, config, _, *command = rest
        begin(Path(run_dir), exercise, config, command)
    elif verb == "reopen":
        reopen(Path(run_dir), rest[0] if rest else "")
    else:
        code, signal, ended = [*rest, "", ""][:3]
        over = verb == "end"
        end(Path(run_dir), int(code), signal, over, by_itself=over and not ended)


if __name__ == "__main__":
    main()
