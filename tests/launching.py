"""The environment in which tests start the launchers, and what a run leaves."""

import csv
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from workshop.record.exercises import find_exercise
from workshop.record.run_record import update_run_record

REPO = Path(__file__).parents[1]
# This test's Python first, so that the launchers find its packages.
PATH = f"{Path(sys.executable).parent}:{os.environ['PATH']}"


def folder_of(exercise: str) -> Path:
    """The folder of an exercise of this repository."""
    return find_exercise(exercise, "*", REPO)


def tiny_profile() -> dict[str, str]:
    """The environment after `source tiny.env`, with this test's Python first on PATH."""
    command = f"source {REPO}/tiny.env && env -0"
    answer = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True).stdout
    variables = dict(line.split("=", 1) for line in answer.split("\0") if "=" in line)
    return variables | {"PATH": PATH}


def run(
    *words: str | Path, cwd: Path = REPO, code: int | None = 0, env: Mapping[str, str] | None = None, **changes: str
) -> subprocess.CompletedProcess[str]:
    """A command that has ended; fails if it ends with another code, unless that is None.

    Args: env: instead of this process's environment, of which this test's Python is first on PATH; `changes` of either.
    """
    environ = dict(os.environ | {"PATH": PATH} if env is None else env) | changes
    job = subprocess.run(words, cwd=cwd, env=environ, capture_output=True, text=True, timeout=600)
    assert code in (None, job.returncode), job.stdout[-5000:] + job.stderr[-3000:]
    return job


def program(path: Path, lines: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/bash\n{lines}\n")
    path.chmod(0o755)


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), "-c", "user.name=t", "-c", "user.email=t@example.org", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def die_after(whole: Path, checkpoint: str, folder: Path) -> Path:
    """A copy of a run as it would be had its node failed some steps after a checkpoint."""
    shutil.copytree(whole, folder)
    (folder / "summary.json").unlink()
    messages = (folder / ".control").read_text().splitlines()
    (folder / ".control").write_text("".join(f"{line}\n" for line in messages if line not in ("over", "finished")))
    for newer in (folder / "bloom-qa-finetuned").glob("checkpoint-*"):
        if newer.name != checkpoint:
            shutil.rmtree(newer)
    update_run_record(folder, state="running", exit_code=None, end_time=None)
    return folder


def launch(log_dir: Path, launcher: str, *arguments: str, **variables: str) -> Path:
    """The run folder, in `log_dir`, of the run that `bash launcher arguments` starts; fails if it does not end well."""
    environment = tiny_profile() | {"LOG_DIR": str(log_dir), "OMP_NUM_THREADS": "1"} | variables
    before = set(log_dir.glob("*/*"))
    run("bash", launcher, *arguments, env=environment)
    (folder,) = set(log_dir.glob("*/*")) - before
    return folder


def only_run(logs: Path, exercise: str = "baseline") -> Path:
    (run,) = (logs / exercise).iterdir()
    return run


def record(run: Path) -> dict[str, Any]:
    return json.loads((run / "run.json").read_text())


def steps(run: Path) -> list[dict[str, str]]:
    with (run / "steps.csv").open() as file:
        return list(csv.DictReader(file))


def losses(run: Path) -> list[float]:
    """The loss of each step, of which each must have one line."""
    lines = steps(run)
    assert [int(line["step"]) for line in lines] == list(range(1, len(lines) + 1)), "a gap, or a step twice"
    return [float(line["loss"]) for line in lines]


def wait_until(condition: Callable[[], object]) -> None:
    """For what another process does soon; the limit is far away, and no test passes because of it."""
    end_s = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < end_s, "waited in vain"
        time.sleep(0.2)
