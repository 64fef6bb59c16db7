"""run.json: what ran and how it ended. The launcher opens and closes it, the training's rank 0 adds what only it knows.

Needs nothing but the standard library, so that the launcher can record a run whose Python packages are broken.
"""

import json
import os
import re
import socket
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from run_folder import csv_log
from run_folder.env_file import exported
from run_folder.schema import VERSION
from run_folder.settings import defaults
from workshop.job.checkpoints import step_of
from workshop.job.control import Control

STACKS = "stacks"  # folder of the ranks' stacks (workshop/job/hangs.py)
LONGEST_DIFF = 20_000  # characters of it in run.json
GIVEN = ".settings.json"  # what `python -m tools submit --resume` starts the run with again
RESERVE = ".reserve"  # room for the end of run.json on a disk that is full by then
RESERVE_BYTES = 64 << 10

_KEY = re.compile(r"(\b[A-Z][A-Z0-9_]*(?:TOKEN|KEY|PASSWORD|SECRET)['\"]?\]?\s*[=:]\s*)(?:\"[^\"\n]*\"|'[^'\n]*'|\S+)")


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
            Control(settings.run_dir).say("saves nothing")


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


def without_keys(diff: str) -> str:
    """`diff` without what was assigned to names such as WANDB_API_KEY: people write keys into env_vars.sh."""
    return _KEY.sub(r"\1[left out]", diff)


def code_version() -> tuple[str | None, bool | None, str]:
    """Commit, whether anything differed from it, and the difference; of a snapshot, what was true when it was made."""
    code = Path(__file__).resolve().parents[2]
    if (code / "snapshot.json").exists():  # made by `python -m tools submit`; it may lie inside another checkout
        facts = json.loads((code / "snapshot.json").read_text())
        diff = (code / "code.diff").read_text(errors="replace") if (code / "code.diff").exists() else ""
        return facts["git_commit"], facts["git_dirty"], diff
    git = ["git", "-C", str(code)]
    commit = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True)
    if commit.returncode:
        return None, None, ""
    diff = subprocess.run([*git, "diff", "HEAD"], capture_output=True, text=True).stdout
    return commit.stdout.strip(), bool(diff), diff


def given_settings() -> dict[str, str]:
    """The settings of this run as env_vars.sh and the shell give them, files with their folders."""
    names = {*defaults(), *exported(Path("env_vars.sh"))} - {"RUN_DIR", "CONFIG", "RESUME_FROM"}
    names = {name for name in names if not re.search("KEY|_TOKEN|SECRET|PASSWORD", name)}
    return {name: os.environ[name] for name in sorted(names) if os.environ.get(name)}


def begin(run_dir: Path, exercise: str, config: str, command: list[str], oom_kills: int) -> None:
    """Open run.json for a run or its next attempt, before which the kernel had killed `oom_kills` processes here."""
    commit, dirty, diff = code_version()
    diff = without_keys(diff)
    if diff:
        (run_dir / "code.diff").write_text(diff)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    again = bool(last_attempt(run_dir))
    (run_dir / RESERVE).write_bytes(bytes(RESERVE_BYTES))
    Control(run_dir).start()
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
        launcher=os.environ.get("LAUNCHER"),
        **({"submission": os.environ["SUBMISSION"]} if os.environ.get("SUBMISSION") else {}),
        git_commit=commit,
        git_dirty=dirty,
        git_diff=diff[:LONGEST_DIFF],
        **({} if again else {"start_time": now}),
        attempt_start_time=now,
        oom_kills_before=oom_kills,
        state="running",
    )


def reopen(run_dir: Path, checkpoint: str, lost_state: str) -> None:
    """The run goes on: what became of it so far joins `attempts`, with what is lost if it goes on from `checkpoint`.

    Args: lost_state: of an attempt whose end nobody could write down.
    """
    saved = Control(run_dir).saved
    (run_dir / "summary.json").unlink(missing_ok=True)  # it may be cut off
    record = read_run_record(run_dir)
    attempts = record.get("attempts", [])
    if (run_dir / STACKS).exists():
        (run_dir / STACKS).rename(run_dir / f"{STACKS}-{len(attempts) + 1}")
    if not record:
        return
    if saved and "was saved" not in (record.get("reason") or ""):  # the launcher was killed before it could say so
        record["reason"] = f"{record.get('reason') or 'told to end'}: checkpoint-{saved} was saved"
    if record["state"] == "running":  # nobody was left to write it down
        reason = "nothing says how this attempt ended: its node failed, or its launcher was killed"
        record |= {"state": lost_state, "reason": reason}
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
    update_run_record(run_dir, **now, attempts=[*attempts, attempt])


def last_step(run_dir: Path) -> int:
    """Of steps.csv; 0 without a step."""
    steps = run_dir / "steps.csv"
    return max((int(row["step"]) for _, row in csv_log.step_rows(steps)), default=0) if steps.exists() else 0
