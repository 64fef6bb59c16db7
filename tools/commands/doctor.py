"""Say whether this site is ready: environment, GPUs, SLURM, caches, space, network; a fix for what is not."""

import argparse
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import metadata
from math import inf
from pathlib import Path
from typing import NamedTuple

from tools.logs.runs import default_logs
from tools.plan.gpus import DEFAULT, GPUS, at_hand
from tools.plan.submitted_lines import prediction_of
from tools.submit.slurm import asked_minutes, minutes
from tools.submit.submissions import exercise_files, read_list
from workshop.record.errors import InputError
from workshop.record.exercises import REPO, exercises_with
from workshop.record.printable import counted, one_line
from workshop.settings.env_file import sourced


def add_arguments(parser: argparse.ArgumentParser) -> None:
    names = "whose models and data the cache must have, as for `prefetch` (default: MODEL_NAME and DATASET)"
    parser.add_argument("names", nargs="*", metavar="EXERCISE_OR_MODEL", help=names)
    parser.add_argument("--space", type=float, default=20, metavar="GIB", help="room for runs (default: 20)")


def main(arguments: argparse.Namespace) -> int:
    environment = sourced(REPO / "cluster.env", os.environ)  # the shell's, with cluster.env
    findings = {
        "python": python(environment),
        "packages": packages(),
        **with_torch(environment, arguments.names),
        "slurm": slurm(environment),
        "time limit": time_limit(environment),
        "space": space(default_logs().resolve(), arguments.space),
        "network": network(environment),
    }
    for name, (status, text, fix) in findings.items():
        print(one_line(f"{status:8} {name:11} {text}" + (f"  fix: {fix}" if fix else "")))
    count = Counter(finding.status for finding in findings.values())
    errors, warnings = counted(count["error"], "error"), counted(count["warning"], "warning")
    print(f"{counted(len(findings), 'check')}: {errors}, {warnings}")
    return int(count["error"] > 0)


class Finding(NamedTuple):
    """Status: ok; warning: other than on a cluster, or slower; error: runs will fail. fix: a command, or nothing."""

    status: str
    text: str
    fix: str = ""


def ask(environment: Mapping[str, str], *command: str, timeout_s: float = 60) -> tuple[str, str]:
    """A program's output, and why it failed, "" if it did not: such as the last line of its standard error."""
    options = {"capture_output": True, "text": True, "errors": "replace"}
    try:
        answer = subprocess.run(command, cwd=REPO, env=dict(environment), timeout=timeout_s, **options)
    except (FileNotFoundError, subprocess.TimeoutExpired) as error:
        return "", str(error)
    lines = answer.stderr.strip().splitlines() or [f"{command[0]} ended with exit code {answer.returncode}"]
    return answer.stdout, lines[-1] if answer.returncode else ""


def with_torch(environment: Mapping[str, str], names: Sequence[str]) -> dict[str, Finding]:
    """Check PyTorch, operators and the hub's cache, in a process: the tools themselves do not import PyTorch."""
    output, failed = ask(environment, sys.executable, "-m", "workshop.measure.doctor_probe", *names, timeout_s=300)
    try:
        return {name: Finding(*finding) for name, finding in json.loads(output.splitlines()[-1]).items()}
    except (IndexError, ValueError):
        return {"torch": Finding("error", failed or "no answer", "make install")}


def python(environment: Mapping[str, str]) -> Finding:
    """Check that jobs use this Python (activate_python in workshop/launch.sh)."""
    folder = Path(environment.get("WORKSHOP_VENV") or REPO / ".venv")
    text = f"{sys.version.split()[0]}, {sys.executable}"
    if "CONDA_SH_PATH" in environment or Path(sys.prefix).resolve() == folder.resolve() or not folder.exists():
        return Finding("ok", text)
    text += f", but jobs take {folder}/bin/python: what follows is about another environment"
    return Finding("warning", text, f"source {folder}/bin/activate")


def packages() -> Finding:
    """Check for the pinned versions; of 2.13.0+cpu the part before the plus counts."""
    file, wrong = REPO / "requirements.txt", []
    pins = re.findall(r"^([\w.-]+)==([\w.]+)", file.read_text(), re.MULTILINE)
    for name, pin in pins:
        version = next((package.version for package in metadata.distributions(name=name)), "missing")
        if version.partition("+")[0] != pin:
            wrong.append(f"{name} {version} (expected {pin})")
    if wrong:
        return Finding("error", ", ".join(wrong), f"{sys.executable} -m pip install -r {file}")
    return Finding("ok", f"{len(pins)} as pinned in {file.name}")


def slurm(environment: Mapping[str, str]) -> Finding:
    """Have sbatch check partition, account, limits and GPUs of each launcher, without queueing it; in a job not."""
    if job := environment.get("SLURM_JOB_ID"):
        return Finding("ok", f"job {job} on {socket.gethostname()}, {environment.get('SLURM_JOB_PARTITION')}")
    if not shutil.which("sbatch", path=environment.get("PATH")):
        text = "no sbatch on PATH: runs start on this machine, one after the other"
        return Finding("warning", text, "module load slurm  (or: python -m tools submit --local)")
    partitions, failed = ask(environment, "sinfo", "--noheader", "--format=%P (%a, limit %l, nodes: %D, %G)")
    if failed:
        return Finding("error", failed, "scontrol ping")
    text = ", ".join(partitions.splitlines())
    paths = [path.relative_to(REPO) for folder in exercises_with("*.slurm") for path in sorted(folder.glob("*.slurm"))]
    refused = {str(path): why for path in paths if (why := ask(environment, "sbatch", "--test-only", str(path))[1])}
    if not refused:
        return Finding("ok", f"sbatch would take all {len(paths)} launchers; {text}")
    reasons = ", ".join(dict.fromkeys(refused.values()))
    text = f"sbatch refuses {len(refused)} of {len(paths)} ({', '.join(refused)}): {reasons}; partitions: {text}"
    fix = f"set SBATCH_PARTITION in cluster.env, then: sbatch --test-only {next(iter(refused))}"
    return Finding("error" if len(refused) == len(paths) else "warning", text, fix)


def time_limit(environment: Mapping[str, str]) -> Finding:
    """Compare the time that launchers and lines ask for with the partition's limit."""
    answer, wanted = ask(environment, "sinfo", "--noheader", "--format=%P %l")[0], environment.get("SBATCH_PARTITION")
    named = [line.split() for line in answer.splitlines()]  # the default partition has a star
    limits = [limit for name, limit in named if (name.rstrip("*") == wanted if wanted else name.endswith("*"))]
    limit_min = min(map(minutes, limits), default=inf)
    lines = [line for file in exercise_files([]) for line in read_list(file, {})]
    asked = [asked_minutes(line, environment) for line in lines]
    longer = {name: asked_min for name, asked_min in asked if asked_min > limit_min}
    if not longer:
        return Finding("ok", "no launcher or line asks for more than the partition allows")
    gpu, planned = GPUS[at_hand() or DEFAULT], Counter[str]()
    for line, (name, _) in zip(lines, asked, strict=True):
        with suppress(InputError):  # not for this GPU
            if name in longer and (prediction := prediction_of(line, gpu)):
                planned[name] = max(planned[name], prediction.limit_min)
    names = [f"{name} ({asked_min:.0f} min, planned {planned[name] or '-'})" for name, asked_min in longer.items()]
    text = f"these wait for ever, the partition allows {limit_min:.0f} min; on {gpu.driver_name}: {', '.join(names)}"
    fix = f"export SBATCH_TIMELIMIT={limit_min:.0f} in cluster.env for the launchers, another partition for the lines"
    return Finding("warning", text, fix)


def space(logs: Path, needed_gib: float) -> Finding:
    """Check that the folder of the runs can be written to and has room."""
    folder = next(path for path in (logs, *logs.parents) if path.is_dir())
    if not os.access(folder, os.W_OK):
        return Finding("error", f"{folder}: cannot write there", "export LOG_DIR=/a/folder/of/yours")
    free_gib = shutil.disk_usage(folder).free / 2**30
    text = f"{free_gib:,.1f} GiB free in {folder}"
    if free_gib < needed_gib:
        text += f"; expected {needed_gib:g} GiB (documents/RESULTS.md has what each exercise saves)"
        return Finding("error", text, "make clean-runs  (or LOG_DIR elsewhere, or SAVE=no)")
    return Finding("ok", text)


def network(environment: Mapping[str, str]) -> Finding:
    """Check the interfaces. NCCL takes beginnings of names, after `^` those not to use; gloo takes whole names."""
    interfaces = [name for _, name in socket.if_nameindex()]
    nccl, gloo = (environment.get(f"{library}_SOCKET_IFNAME", "") for library in ("NCCL", "GLOO"))
    missing = []
    if not nccl.startswith("^") and not any(name.startswith(tuple(nccl.lstrip("=").split(","))) for name in interfaces):
        missing.append(f"NCCL_SOCKET_IFNAME={nccl}")
    if gloo and not set(gloo.split(",")) & set(interfaces):
        missing.append(f"GLOO_SOCKET_IFNAME={gloo}")
    here = f"interfaces: {' '.join(interfaces)}"
    if missing:
        return Finding("error", f"no {', no '.join(missing)}; {here}", "set it in cluster.env to an interface of here")
    return Finding("ok", f"NCCL_SOCKET_IFNAME={nccl or '(not set)'}, {here}")
