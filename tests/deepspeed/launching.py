"""Start an exercise through its launcher on CPU, and read what it leaves."""

import csv
import json
import subprocess
from pathlib import Path

from tests.launching import REPO, tiny_profile


def tiny(log_dir: Path, **changes: str) -> dict[str, str]:
    """The environment of the tiny profile, without SLURM."""
    return tiny_profile() | {"LOG_DIR": str(log_dir), "OMP_NUM_THREADS": "1"} | changes


def launch(launcher: str, *arguments: str, log_dir: Path, cwd: Path = REPO, **changes: str) -> Path:
    """Run `bash launcher arguments`; the run folder. Fails with the training's output if it does not end well."""
    before = set(log_dir.glob("*/*")) if log_dir.exists() else set()
    command = ["bash", launcher, *arguments]
    job = subprocess.run(command, cwd=cwd, env=tiny(log_dir, **changes), capture_output=True, text=True, timeout=400)
    assert job.returncode == 0, job.stdout[-5000:] + job.stderr[-2000:]
    if "RESUME_RUN" in changes:
        return Path(changes["RESUME_RUN"])
    (run,) = set(log_dir.glob("*/*")) - before
    return run


def record(run: Path) -> dict[str, object]:
    return json.loads((run / "run.json").read_text())


def losses(run: Path) -> list[float]:
    with (run / "steps.csv").open() as file:
        return [float(row["loss"]) for row in csv.DictReader(file)]
