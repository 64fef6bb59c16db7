"""Runs the checks on a compute node, in a small job, and reads its answer through the shared file system."""

from __future__ import annotations

import json
import os
import shlex
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tools.doctor.checks import Finding, ask
from tools.submit import slurm
from tools.tables.repository import ROOT

FILES_ARRIVE_S = 10  # until a file that another node has written is seen here


def findings(environment: Mapping[str, str], logs: Path, arguments: Sequence[str], wait_s: float) -> list[Finding]:
    """What `doctor` says on a node. `environment`: with cluster.env; `arguments`: doctor's own, for there."""
    if not slurm.available():
        return [Finding("error", "no sbatch on PATH", "module load slurm  (or without --job)", "job")]
    logs.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".doctor-", dir=logs.resolve(), ignore_cleanup_errors=True) as folder:
        return _ask_a_node(environment, Path(folder), arguments, wait_s)


def _ask_a_node(environment: Mapping[str, str], folder: Path, arguments: Sequence[str], wait_s: float) -> list[Finding]:
    answer, output, name = folder / "answer.json", folder / "job.out", folder.name.removeprefix(".")
    doctor = shlex.join([sys.executable, "-m", "tools", "doctor", "--json", *arguments])
    # cluster.env again, as the launchers do: modules are loaded on the node.
    script = f"[ ! -f cluster.env ] || source cluster.env; {doctor} > {shlex.quote(str(answer))}"
    options = [f"--job-name={name}", "--nodes=1", "--ntasks=1", "--time=5", f"--output={output}", "--chdir", str(ROOT)]
    options.append(f"--wrap={shlex.join(['bash', '-c', script])}")
    wanted = environment.get("SBATCH_PARTITION")
    listed = ask(["sinfo", "--noheader", "--format=%G", *(["--partition", wanted] if wanted else [])], environment)
    options += ["--gpus-per-node=1"] * ("gpu" in listed.output)
    start_s = time.time()
    try:
        said = ask(["sbatch", "--wait", *options], os.environ | slurm.site_options(ROOT), wait_s)
        state = ask(["squeue", "--noheader", f"--name={name}", "--format=%T (%r)"], environment).output.strip()
    finally:
        ask(["scancel", "--quiet", f"--name={name}"], environment)
    if said.code == 124:
        text = f"the job is {state} after {wait_s:.0f} s; cancelled"
        return [Finding("error", text, "squeue --start; or: python -m tools doctor --job --wait 3600", "job")]
    arrives_s = time.time() + FILES_ARRIVE_S
    while said.output and not answer.exists() and time.time() < arrives_s:
        time.sleep(1)
    try:
        found = json.loads(answer.read_text())
    except (OSError, ValueError):
        last = output.read_text(errors="replace").strip().splitlines()[-1:] if output.exists() else []
        if last or not said.output:
            return [Finding("error", last[0] if last else said.complaint, "python -m tools doctor", "job")]
        text = f"nothing came back in {folder}; expected LOG_DIR on a shared file system"
        return [Finding("error", text, "export LOG_DIR=/a/shared/folder", "job")]
    text = f"on {found['host']}, {time.time() - start_s:.0f} s with its time in the queue"
    return [Finding("ok", text, name="job"), *(Finding(**one) for one in found["findings"])]
