"""Runs the checks on a compute node, in a small job, and reads its answer through the shared file system."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tools.doctor.finding import Finding, ask
from tools.submit import slurm
from tools.tables.repository import ROOT

ASK_EVERY_S = 1
FILES_ARRIVE_S = 10  # until a file that another node has written is seen here
CLOCK_TOLERANCE_S = 5


def findings(environment: Mapping[str, str], logs: Path, arguments: Sequence[str], wait_s: float) -> list[Finding]:
    """What `doctor` says on a node. `environment`: with cluster.env; `arguments`: doctor's own, for there."""
    if not slurm.available():
        return [Finding("job", "error", "no sbatch on PATH", "module load slurm  (or without --job)")]
    logs.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=".doctor-", dir=logs.resolve()))
    try:
        return _ask_a_node(environment, folder, arguments, wait_s)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _ask_a_node(environment: Mapping[str, str], folder: Path, arguments: Sequence[str], wait_s: float) -> list[Finding]:
    answer = folder / "answer.json"
    doctor = shlex.join([sys.executable, "-m", "tools", "doctor", "--json", *arguments])
    # cluster.env again, as the launchers do: modules are loaded on the node.
    script = f"[ ! -f cluster.env ] || source cluster.env; {doctor} > {shlex.quote(str(answer))}.part"
    script += f"; mv {shlex.quote(str(answer))}.part {shlex.quote(str(answer))}"
    options = ["--job-name=doctor", "--nodes=1", "--ntasks=1", "--time=5", f"--output={folder}/job.out"]
    options += ["--chdir", str(ROOT), *_one_gpu(environment), f"--wrap={shlex.join(['bash', '-c', script])}"]
    start_s = time.time()
    try:
        job = slurm.sbatch(options, [], os.environ | slurm.site_options(ROOT))
    except slurm.SbatchError as error:
        return [Finding("job", "error", str(error), "python -m tools doctor  (partitions, and what sbatch refuses)")]
    try:
        waiting = _wait(job, environment, start_s + wait_s)
    finally:
        ask(["scancel", "--quiet", job], environment)
    if waiting:
        text = f"job {job} is {waiting} after {wait_s:.0f} s; cancelled"
        return [Finding("job", "error", text, "squeue --start; or: python -m tools doctor --job --wait 3600")]
    arrives_s = time.time() + FILES_ARRIVE_S
    while not answer.exists() and time.time() < arrives_s:
        time.sleep(ASK_EVERY_S)
    return _read(job, answer, start_s)


def _one_gpu(environment: Mapping[str, str]) -> list[str]:
    """Asked for where the partition of the jobs has GPUs."""
    wanted = environment.get("SBATCH_PARTITION")
    chosen = ["--partition", wanted] if wanted else []
    has_gpus = "gpu" in ask(["sinfo", "--noheader", "--format=%G", *chosen], environment).output
    return ["--gpus-per-node=1"] if has_gpus else []


def _wait(job: str, environment: Mapping[str, str], until_s: float) -> str:
    """ "" when the job has ended; else its state and why it waits."""
    while True:
        answer = ask(["squeue", "--noheader", f"--job={job}", "--format=%T (%r)"], environment)
        if answer.code or not answer.output.strip():
            return ""
        if time.time() > until_s:
            return answer.output.strip()
        time.sleep(ASK_EVERY_S)


def _read(job: str, answer: Path, start_s: float) -> list[Finding]:
    try:
        found = json.loads(answer.read_text())
    except (OSError, ValueError):
        output = answer.with_name("job.out")
        last = output.read_text(errors="replace").strip().splitlines()[-1:] if output.exists() else []
        text = last[0] if last else f"nothing came back in {answer.parent}; expected LOG_DIR on a shared file system"
        return [Finding("job", "error", f"job {job}: {text}", "export LOG_DIR=/a/shared/folder")]
    ended_s = time.time()
    text = f"job {job} on {found['host']}, {ended_s - start_s:.0f} s with its time in the queue"
    here = [Finding(**one) for one in found["findings"]]
    if not start_s - CLOCK_TOLERANCE_S <= found["time_s"] <= ended_s + CLOCK_TOLERANCE_S:
        clocks = f"{found['host']}'s is {found['time_s'] - ended_s:+.0f} s from this machine's"
        here.append(Finding("clock", "warning", clocks, "timedatectl status  (on both machines)"))
    return [Finding("job", "ok", text), *here]
