"""Say whether this site is ready: environment, GPUs, SLURM, caches, space, network; a fix for what is not."""

import argparse
import json
import os
import shlex
import socket
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from tools.commands.options import at_least_0
from tools.doctor.checks import Finding, Place, ask, findings, probe
from tools.logs.runs import default_logs
from tools.submit import slurm
from tools.tables.repository import ROOT
from workshop.run_folder.env_file import sourced
from workshop.run_folder.plural import counted

FILES_ARRIVE_S = 10  # until a file that another node has written is seen here


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "names",
        nargs="*",
        metavar="EXERCISE_OR_MODEL",
        help="whose models and data the cache must have, as for `prefetch` (default: MODEL_NAME and DATASET)",
    )
    parser.add_argument("--job", action="store_true", help="look on a compute node, through sbatch")
    parser.add_argument("--wait", type=at_least_0, default=300, metavar="S", help="with --job: how long (default: 300)")
    parser.add_argument("--space", type=at_least_0, default=20, metavar="GIB", help="room for runs (default: 20)")
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.add_argument("--logs", type=Path, default=None, help="folder of the runs (default: $LOG_DIR, else logs/)")


def run(arguments: argparse.Namespace) -> int:
    variables = sourced(ROOT / "cluster.env", os.environ)
    logs = (arguments.logs or default_logs()).resolve()
    if arguments.job and not slurm.available():
        found = [Finding("error", "no sbatch on PATH", "module load slurm  (or without --job)", "job")]
    elif arguments.job:
        same = [*arguments.names, "--space", str(arguments.space), "--logs", str(logs)]
        logs.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".doctor-", dir=logs, ignore_cleanup_errors=True) as folder:
            found = _ask_a_node(variables, Path(folder), same, arguments.wait)
    else:
        facts = probe(variables, arguments.names)
        found = [*findings(Place(variables, arguments.names, logs, arguments.space, facts))]
    errors = [one for one in found if one.status == "error"]
    if arguments.json:
        print(json.dumps({"host": socket.gethostname(), "findings": [asdict(one) for one in found]}, indent=2))
    else:
        print("\n".join(map(str, found)))
        warnings = sum(one.status == "warning" for one in found)
        print(f"{counted(len(found), 'check')}: {counted(len(errors), 'error')}, {counted(warnings, 'warning')}")
    return 1 if errors else 0


def _ask_a_node(environment: Mapping[str, str], folder: Path, arguments: Sequence[str], wait_s: float) -> list[Finding]:
    """What `doctor` says in a small job; its answer comes through the shared file system.

    Args:
        environment: with cluster.env; folder: for the answer; arguments: doctor's own, for there.
    """
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
