"""Say whether this site is ready: environment, GPUs, SLURM, caches, space, network; a fix for what is not.

Each check, in the order of CHECKS, gives what it found, with the command that mends it; None: nothing to check here.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from tools.commands.options import above_0
from tools.logs.runs import default_logs
from tools.tables.repository import ROOT
from workshop.run_folder.env_file import sourced
from workshop.run_folder.exercises import exercises_with
from workshop.run_folder.plural import counted
from workshop.run_folder.printable import one_line

_REQUIREMENTS = ROOT / "requirements.txt"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "names",
        nargs="*",
        metavar="EXERCISE_OR_MODEL",
        help="whose models and data the cache must have, as for `prefetch` (default: MODEL_NAME and DATASET)",
    )
    parser.add_argument("--space", type=above_0, default=20, metavar="GIB", help="room for runs (default: 20)")
    parser.add_argument("--logs", type=Path, default=None, help="folder of the runs (default: $LOG_DIR, else logs/)")


def run(arguments: argparse.Namespace) -> int:
    variables, logs = sourced(ROOT / "cluster.env", os.environ), (arguments.logs or default_logs()).resolve()
    facts = probe(variables, arguments.names)
    found = findings(Site(variables, arguments.names, logs, arguments.space, facts))
    for name, one in found.items():
        print(one_line(f"{one.status:8} {name:11} {one.text}" + (f"  fix: {one.fix}" if one.fix else "")))
    errors, warnings = (sum(one.status == status for one in found.values()) for status in ("error", "warning"))
    print(f"{counted(len(found), 'check')}: {counted(errors, 'error')}, {counted(warnings, 'warning')}")
    return int(errors > 0)


class Finding(NamedTuple):
    """What a check found.

    Attributes:
        status: ok; warning: something works otherwise than on a cluster, or slower; error: runs will fail.
        text: what was found, and what is expected where it is something else.
        fix: a command, or nothing where all is well.
    """

    status: str
    text: str
    fix: str = ""


@dataclass(frozen=True)
class Site:
    """Where runs will be started.

    Attributes:
        environment: the shell's, with cluster.env.
        names: what prefetch would be asked for.
        logs: the folder of the runs; space_gib: the room that it should have.
        facts: what a process with PyTorch says (workshop/measure/doctor_probe.py), by part.
    """

    environment: Mapping[str, str]
    names: Sequence[str] = ()
    logs: Path = Path()
    space_gib: float = 0
    facts: Mapping[str, Any] = field(default_factory=dict)

    def which(self, program: str) -> str | None:
        return shutil.which(program, path=self.environment.get("PATH"))

    def ask(self, *command: str, timeout_s: float = 60) -> tuple[str, str]:
        """A program's output, and why it failed, "" if it did not: such as the last line of its standard error."""
        options = {"capture_output": True, "text": True, "errors": "replace", "timeout": timeout_s}
        try:
            answer = subprocess.run(command, cwd=ROOT, env=dict(self.environment), **options)
        except FileNotFoundError:
            return "", f"{command[0]}: not found"
        except subprocess.TimeoutExpired:
            return "", f"{command[0]}: no answer within {timeout_s:.0f} s"
        lines = answer.stderr.strip().splitlines() or [f"{command[0]} ended with exit code {answer.returncode}"]
        return answer.stdout, lines[-1] if answer.returncode else ""

    @cached_property
    def driver(self) -> str:
        """GPUs and driver as nvidia-smi names them; "" without one."""
        output, failed = self.ask("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader")
        return "" if failed else _counted(output.strip().splitlines())


def probe(environment: Mapping[str, str], names: Sequence[str]) -> dict[str, Any]:
    """The facts of a Site."""
    command = [sys.executable, "-m", "workshop.measure.doctor_probe", *names]
    output, failed = Site(environment).ask(*command, timeout_s=300)
    try:
        return json.loads(output.splitlines()[-1])
    except (IndexError, ValueError):
        return {part: {"problem": failed or "no answer"} for part in ("torch", "operators", "cache")}


def _counted(names: Sequence[str]) -> str:
    return ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names))


def python(site: Site) -> Finding:
    """Check that jobs use this Python (activate_python in workshop/launch.sh)."""
    folder = Path(site.environment.get("WORKSHOP_VENV") or ROOT / ".venv")
    own, takes = Path(sys.executable), folder / "bin/python"
    text = f"{platform.python_version()}, {own}"
    if "CONDA_SH_PATH" not in site.environment and takes.exists() and own.parent.resolve() != takes.parent.resolve():
        text += f", but jobs take {takes}: what follows is about another environment"
        return Finding("warning", text, f"source {folder}/bin/activate")
    return Finding("ok", text)


def packages(site: Site, requirements: Path = _REQUIREMENTS) -> Finding:
    """Check for the pinned versions; of 2.13.0+cpu the part before the plus counts."""
    pins = re.findall(r"^([\w.-]+)==([\w.]+)", requirements.read_text(), re.MULTILINE)
    wrong = []
    for name, pin in pins:
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            version = "missing"
        if version.partition("+")[0] != pin:
            wrong.append(f"{name} {version} (expected {pin})")
    if wrong:
        return Finding("error", ", ".join(wrong), f"{sys.executable} -m pip install -r {requirements}")
    return Finding("ok", f"{len(pins)} as pinned in {requirements.name}")


def torch(site: Site) -> Finding:
    """Check PyTorch's version, and for CUDA and NCCL where there are GPUs."""
    facts = site.facts["torch"]
    text = f"{facts['version']}, CUDA {facts['cuda'] or 'not built in'}, NCCL {facts['nccl'] or 'not built in'}"
    text += f", driver: {site.driver or 'none'}"
    if site.driver and not (facts["cuda"] and facts["nccl"]):
        version = facts["version"].partition("+")[0]
        fix = f"{sys.executable} -m pip install --force-reinstall torch=={version}"
        return Finding("error", f"{text}: expected a build with CUDA and NCCL on a machine with GPUs", fix)
    return Finding("ok", text)


def gpus(site: Site) -> Finding:
    """Check which GPUs PyTorch sees."""
    facts = site.facts["torch"]
    if facts["gpus"]:
        return Finding("ok", _counted(facts["gpus"]))
    if site.driver:
        why = facts["warning"] or "CUDA_VISIBLE_DEVICES hides them, or the driver is older than this CUDA"
        return Finding("error", f"PyTorch sees none: {why}", "nvidia-smi; echo $CUDA_VISIBLE_DEVICES")
    if "SLURM_JOB_ID" in site.environment:
        return Finding("error", "none in this job; expected one", "sinfo -o '%P %G'")
    text = "none here: training runs on the CPU; on a login node that is as it should be"
    return Finding("warning", text, "sbatch --gpus-per-node=1 --wrap='python -m tools doctor'")


def operators(site: Site) -> Finding:
    """Check DeepSpeed's operators and the compilers that they need: c++, beside a GPU also nvcc."""
    facts = site.facts["operators"]
    if facts["no_compiler"]:
        status = "error" if facts["missing"] else "warning"
        return Finding(status, facts["no_compiler"], "module load gcc cuda; or: apt-get install g++")
    if facts["missing"]:
        text = f"not compiled for {facts['for']}: {', '.join(facts['missing'])}; a first job would take minutes longer"
        return Finding("warning", text, "python -m workshop.kernels.operators")
    compiler, nvcc = site.which(site.environment.get("CXX", "c++")), facts["cuda_home"] or site.which("nvcc")
    return Finding("ok", f"compiled for {facts['for']}; {compiler}, nvcc: {nvcc or 'none'}")


def cache(site: Site) -> Finding:
    """Check for model and data in the hub's cache."""
    facts, fetch = site.facts["cache"], " ".join(["python -m workshop.data.prefetch", *site.names])
    missing = [f"{one['kind']} {one['name']}" for one in facts if not one["complete"]]
    if missing:
        text = f"not in the cache, or not all of it: {', '.join(missing)}"
        return Finding("error", text, f"{fetch}  (or without network: source tiny.env)")
    have = ", ".join(f"{one['kind']} {one['name']}" for one in facts)
    return Finding("ok", have or "nothing is needed from the hub")


def slurm(site: Site) -> Finding:
    """Check for a partition that is up; in a job name its resources."""
    if "SLURM_JOB_ID" in site.environment:
        job, partition = (site.environment.get(f"SLURM_JOB_{name}") for name in ("ID", "PARTITION"))
        given = counted(int(site.environment.get("SLURM_GPUS_ON_NODE", "0")), "GPU")
        return Finding("ok", f"job {job} on {socket.gethostname()}, partition {partition}, {given}")
    if not site.which("sbatch"):
        text = "no sbatch on PATH: runs start on this machine, one after the other"
        return Finding("warning", text, "module load slurm  (or: python -m tools submit --local)")
    # Name, availability, time limit, nodes, GPUs; several lines for nodes that differ.
    output, failed = site.ask("sinfo", "--noheader", "--format=%P|%a|%l|%D|%G")
    if failed or not output.strip():
        return Finding("error", failed or "no partition", "scontrol ping")
    rows = [line.split("|") for line in output.split("\n") if line.count("|") == 4]
    text = ", ".join(f"{name} ({up}, limit {limit}, nodes: {nodes}, {gpus})" for name, up, limit, nodes, gpus in rows)
    wanted = site.environment.get("SBATCH_PARTITION")
    mine = [row for row in rows if (row[0].rstrip("*") in wanted.split(",") if wanted else row[0].endswith("*"))]
    if not any(row[1] == "up" for row in mine):
        text = f"expected one that is up for SBATCH_PARTITION={wanted or '(the default)'}: {text}"
        return Finding("error", text, "set SBATCH_PARTITION in cluster.env (cp cluster.env.example cluster.env)")
    return Finding("ok", text)


def launchers(site: Site) -> Finding | None:
    """Have sbatch check each launcher's limits, account and GPUs without queueing it; not in a job or without SLURM."""
    if "SLURM_JOB_ID" in site.environment or not site.which("sbatch") or site.ask("sinfo")[1]:
        return None
    folders = exercises_with("*.slurm")
    paths = [str(path.relative_to(ROOT)) for folder in folders for path in sorted(folder.glob("*.slurm"))]
    refused = {path: why for path in paths if (why := site.ask("sbatch", "--test-only", path)[1])}
    if not refused:
        return Finding("ok", f"sbatch would take all {len(paths)}")
    reasons = ", ".join(dict.fromkeys(refused.values()))
    text = f"sbatch refuses {len(refused)} of {len(paths)} ({', '.join(refused)}): {reasons}"
    fix = f"edit cluster.env, then: sbatch --test-only {next(iter(refused))}"
    return Finding("error" if len(refused) == len(paths) else "warning", text, fix)


def space(site: Site) -> Finding:
    """Check that the folder of the runs can be written to and has room."""
    folder = next(path for path in (site.logs, *site.logs.parents) if path.is_dir())
    if not os.access(folder, os.W_OK):
        return Finding("error", f"{folder}: cannot write there", "export LOG_DIR=/a/folder/of/yours")
    free_gib = shutil.disk_usage(folder).free / 2**30
    text = f"{free_gib:,.1f} GiB free in {folder}"
    if free_gib < site.space_gib:
        text += f"; expected {site.space_gib:g} GiB (documents/RESULTS.md has what each exercise saves)"
        return Finding("error", text, "make clean-runs  (or LOG_DIR elsewhere, or SAVE=no)")
    return Finding("ok", text)


def network(site: Site, interfaces: Sequence[str] = tuple(name for _, name in socket.if_nameindex())) -> Finding:
    """Check the interfaces. NCCL takes beginnings of names, after `^` those not to use; gloo takes whole names."""
    nccl, gloo = (site.environment.get(f"{library}_SOCKET_IFNAME", "") for library in ("NCCL", "GLOO"))
    begins = tuple(nccl.lstrip("=").split(","))
    found = nccl.startswith("^") or any(one.startswith(begins) for one in interfaces)
    missing = "" if found else f"NCCL_SOCKET_IFNAME={nccl}"
    if gloo and not set(gloo.split(",")) & set(interfaces):
        missing = f"GLOO_SOCKET_IFNAME={gloo}"
    if missing:
        fix = f"set it in cluster.env to one of: {' '.join(interfaces)}  (ip -br address)"
        return Finding("error", f"{missing}: no such interface here", fix)
    text = f"NCCL_SOCKET_IFNAME={nccl}" if nccl else "NCCL_SOCKET_IFNAME not set: NCCL chooses"
    return Finding("ok", f"{text} of {' '.join(interfaces)}")


CHECKS = (python, packages, torch, gpus, operators, cache, slurm, launchers, space, network)


def findings(site: Site) -> dict[str, Finding]:
    """What each check found, by its name; of a check without its facts, why the probe has none."""
    found = {}
    for check in CHECKS:
        facts = site.facts.get("torch" if check is gpus else check.__name__, ())
        one = Finding("error", facts["problem"], "make install") if "problem" in facts else check(site)
        found |= {check.__name__: one} if one else {}
    return found
