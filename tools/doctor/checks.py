"""The checks, in the order of CHECKS. Each gives what it found, with the command that mends it.

None: there is nothing to look at here.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import socket
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any

from run_folder.plural import counted
from tools.doctor.finding import Answer, Finding, ask
from tools.logs.folder import LOST_AFTER_S
from tools.tables.repository import ROOT

REQUIREMENTS = ROOT / "requirements.txt"
PROBE_TIMEOUT_S = 300
CLOCKS_DIFFER_S = 60
GIB = 2**30


@dataclass(frozen=True)
class Place:
    """Where runs shall be started.

    Attributes:
        environment: the shell's, with cluster.env.
        names: what prefetch would be asked for.
        logs: the folder of the runs.
        space_gib: the room that it should have.
        facts: what a process with PyTorch says (workshop/measure/doctor_probe.py), by part.
    """

    environment: Mapping[str, str]
    names: Sequence[str] = ()
    logs: Path = Path()
    space_gib: float = 0
    facts: Mapping[str, Any] = field(default_factory=dict)

    def which(self, program: str) -> str | None:
        return shutil.which(program, path=self.environment.get("PATH"))

    def ask(self, *command: str, **options: object) -> Answer:
        return ask(command, self.environment, **options)

    @cached_property
    def driver(self) -> str:
        """GPUs and driver as nvidia-smi names them; "" without one."""
        if not self.which("nvidia-smi"):
            return ""
        answer = self.ask("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader")
        lines = answer.output.strip().splitlines()
        return "" if answer.code else ", ".join(f"{lines.count(line)} x {line}" for line in dict.fromkeys(lines))

    @cached_property
    def listed(self) -> Answer:
        """sinfo's name|availability|time limit|nodes|GPUs, several lines for nodes that differ."""
        return self.ask("sinfo", "--noheader", "--format=%P|%a|%l|%D|%G")

    @property
    def can_queue(self) -> bool:
        """Whether SLURM answers; what a job was given needs no queue."""
        if "SLURM_JOB_ID" in self.environment or not self.which("sbatch"):
            return False
        return not self.listed.code and bool(self.listed.output.strip())


def probe(environment: Mapping[str, str], names: Sequence[str]) -> dict[str, Any]:
    """The facts of a Place."""
    command = [sys.executable, "-m", "workshop.measure.doctor_probe", *names]
    answer = ask(command, environment, cwd=ROOT, timeout_s=PROBE_TIMEOUT_S)
    try:
        return json.loads(answer.output.splitlines()[-1])
    except (IndexError, ValueError):
        return {part: {"problem": answer.complaint} for part in ("torch", "operators", "cache", "wandb")}


def python(place: Place) -> Finding:
    """That it is new enough, and the one that the launchers take (activate_python in workshop/launch.sh)."""
    least = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"].removeprefix(">=")
    version = platform.python_version()
    if sys.version_info < tuple(map(int, least.split("."))):
        return Finding("python", "error", f"{version}; expected {least} or newer", "make install PYTHON=python3.12")
    folder = Path(place.environment.get("WORKSHOP_VENV") or ROOT / ".venv")
    own, takes = Path(sys.executable), folder / "bin/python"
    if "CONDA_SH_PATH" not in place.environment and takes.exists() and own.parent.resolve() != takes.parent.resolve():
        text = f"{version}, {own}, but jobs take {takes}: what follows is about another environment"
        return Finding("python", "warning", text, f"source {folder}/bin/activate")
    return Finding("python", "ok", f"{version}, {own}")


def packages(place: Place, requirements: Path = REQUIREMENTS) -> Finding:
    """That this environment has the pinned versions; of 2.13.0+cpu the part before the plus counts."""
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
        return Finding("packages", "error", ", ".join(wrong), f"{sys.executable} -m pip install -r {requirements}")
    return Finding("packages", "ok", f"{len(pins)} as pinned in {requirements.name}")


def torch(place: Place) -> Finding:
    facts = place.facts["torch"]
    if "problem" in facts:
        return Finding("torch", "error", facts["problem"], "make install")
    version = f"{facts['version']}, CUDA {facts['cuda'] or 'not built in'}, driver: {place.driver or 'none'}"
    if place.driver and not facts["cuda"]:
        text = f"{version}: a build without CUDA on a machine with GPUs"
        return Finding("torch", "error", text, _install(facts))
    return Finding("torch", "ok", version)


def _install(torch_facts: Mapping[str, Any]) -> str:
    return f"{sys.executable} -m pip install --force-reinstall torch=={torch_facts['version'].partition('+')[0]}"


def gpus(place: Place) -> Finding | None:
    """Those that PyTorch sees."""
    facts = place.facts["torch"]
    if torch(place).status == "error":
        return None
    if facts["gpus"]:
        names = [f"{facts['gpus'].count(name)} x {name}" for name in dict.fromkeys(facts["gpus"])]
        return Finding("gpus", "ok", ", ".join(names))
    if place.driver:
        why = facts["warning"] or "CUDA_VISIBLE_DEVICES hides them, or the driver is older than this CUDA"
        return Finding("gpus", "error", f"PyTorch sees none: {why}", "nvidia-smi; echo $CUDA_VISIBLE_DEVICES")
    if "SLURM_JOB_ID" in place.environment:
        return Finding("gpus", "error", "none in this job; expected one", "sinfo -o '%P %G'")
    text = "none here: training runs on the CPU; on a login node that is as it should be"
    return Finding("gpus", "warning", text, "python -m tools doctor --job")


def nccl(place: Place) -> Finding | None:
    facts = place.facts["torch"]
    if torch(place).status == "error":
        return None
    if facts["gpus"] and not facts["nccl"]:
        text = "not in this PyTorch; several GPUs cannot work together"
        return Finding("nccl", "error", text, _install(facts))
    return Finding("nccl", "ok", facts["nccl"] or "not needed without GPUs: gloo connects the ranks")


def compiler(place: Place) -> Finding:
    """c++ for DeepSpeed's operators; nvcc, too, where there is a GPU."""
    facts = place.facts["operators"]
    if "problem" in facts:
        return Finding("compiler", "warning", f"not looked at: {facts['problem']}", "make install")
    if facts["hindrance"]:
        status = "error" if facts["missing"] else "warning"
        return Finding("compiler", status, facts["hindrance"], "module load gcc cuda; or: apt-get install g++")
    nvcc = facts["cuda_home"] or place.which("nvcc")
    return Finding("compiler", "ok", f"{place.which(place.environment.get('CXX', 'c++'))}, nvcc: {nvcc or 'none'}")


def operators(place: Place) -> Finding:
    facts = place.facts["operators"]
    if "problem" in facts:
        return Finding("operators", "error", facts["problem"], "make install")
    if facts["missing"]:
        text = f"not compiled for {facts['for']}: {', '.join(facts['missing'])}; a first job would take minutes longer"
        return Finding("operators", "warning", text, "python -m workshop.kernels.operators")
    return Finding("operators", "ok", f"compiled for {facts['for']}")


def cache(place: Place) -> Finding:
    """Model and data in the hub's cache."""
    facts, fetch = place.facts["cache"], " ".join(["python -m workshop.data.prefetch", *place.names])
    if "problem" in facts:
        return Finding("cache", "error", facts["problem"], f"{fetch} --sizes")
    missing = [f"{one['kind']} {one['name']}" for one in facts if not one["complete"]]
    if missing:
        text = f"not in the cache, or not all of it: {', '.join(missing)}"
        return Finding("cache", "error", text, f"{fetch}  (or without network: source tiny.env)")
    have = ", ".join(f"{one['kind']} {one['name']}" for one in facts)
    return Finding("cache", "ok", have or "nothing is needed from the hub")


def wandb(place: Place) -> Finding:
    """A problem only for who reports there; the local files have every figure."""
    facts, wanted = place.facts["wandb"], "wandb" in place.environment.get("REPORT_TO", "")
    online = wanted and place.environment.get("WANDB_MODE") == "online"
    if "problem" in facts:
        return Finding("wandb", "warning", facts["problem"], "make install")
    if online and facts["hindrance"]:
        fix = "wandb login; or: export WANDB_MODE=offline"
        return Finding("wandb", "warning", f"{facts['hindrance']}; runs stay offline", fix)
    return Finding("wandb", "ok", "online" if online else "offline" if wanted else "not asked for (REPORT_TO)")


def slurm(place: Place) -> Finding:
    """Partitions with limits and GPUs; in a job, what it was given."""
    if "SLURM_JOB_ID" in place.environment:
        job, partition = (place.environment.get(f"SLURM_JOB_{name}") for name in ("ID", "PARTITION"))
        given = counted(int(place.environment.get("SLURM_GPUS_ON_NODE", "0")), "GPU")
        return Finding("slurm", "ok", f"job {job} on {socket.gethostname()}, partition {partition}, {given}")
    if not place.which("sbatch"):
        text = "no sbatch on PATH: runs start on this machine, one after the other"
        return Finding("slurm", "warning", text, "module load slurm  (or: python -m tools submit --local)")
    if not place.can_queue:
        return Finding("slurm", "error", place.listed.complaint or "no partition", "scontrol ping")
    rows = [line.split("|") for line in place.listed.output.split("\n") if line.count("|") == 4]
    text = ", ".join(f"{name} ({up}, limit {limit}, nodes: {nodes}, {gpus})" for name, up, limit, nodes, gpus in rows)
    wanted = place.environment.get("SBATCH_PARTITION")
    mine = [row for row in rows if (row[0].rstrip("*") in wanted.split(",") if wanted else row[0].endswith("*"))]
    fix = "set SBATCH_PARTITION in cluster.env (cp cluster.env.example cluster.env)"
    if not mine:
        found = f"SBATCH_PARTITION={wanted} is not one of them" if wanted else "none is the default"
        return Finding("slurm", "error", f"{found}: {text}", fix)
    if all(row[1] != "up" for row in mine):
        return Finding("slurm", "error", f"{mine[0][0]} is {mine[0][1]}: {text}", fix)
    if not any("gpu" in row[4] for row in mine):
        return Finding("slurm", "warning", f"{mine[0][0]} has no GPUs: {text}", fix)
    return Finding("slurm", "ok", text)


def launchers(place: Place) -> Finding | None:
    """sbatch looks at each launcher's limits, account and GPUs without queueing it."""
    if not place.can_queue:
        return None
    paths, refused = sorted(ROOT.glob("*/*.slurm")), {}
    for path in paths:
        answer = place.ask("sbatch", "--test-only", path.name, cwd=path.parent)
        if answer.code:
            refused.setdefault(answer.complaint, []).append(str(path.relative_to(ROOT)))
    if not refused:
        return Finding("launchers", "ok", f"sbatch would take all {len(paths)}")
    count = sum(map(len, refused.values()))
    reasons = ", ".join(f"{reason} ({', '.join(names)})" for reason, names in refused.items())
    status = "error" if count == len(paths) else "warning"
    fix = f"edit cluster.env, then: sbatch --test-only {next(iter(refused.values()))[0]}"
    return Finding("launchers", status, f"sbatch refuses {count} of {len(paths)}: {reasons}", fix)


def accounting(place: Place) -> Finding | None:
    if not place.can_queue:
        return None
    answer = place.ask("sacct", "--noheader", "--allocations")
    if answer.code:
        text = f"{answer.complaint}; what SLURM knew of a job is gone soon after its end, run.json stays"
        return Finding("accounting", "warning", text, "python -m tools runs")
    return Finding("accounting", "ok", "sacct answers")


def space(place: Place) -> Finding:
    """Where the runs are written: that one may, and has room."""
    folder = _existing(place.logs)
    if not os.access(folder, os.W_OK):
        return Finding("space", "error", f"{folder}: cannot write there", "export LOG_DIR=/a/folder/of/yours")
    free_gib = shutil.disk_usage(folder).free / GIB
    text = f"{free_gib:,.1f} GiB free in {folder}"
    if free_gib < place.space_gib:
        text += f"; expected {place.space_gib:g} GiB (README.md has what each exercise saves)"
        return Finding("space", "error", text, "make clean-runs  (or LOG_DIR elsewhere, or SAVE=no)")
    return Finding("space", "ok", text)


def quota(place: Place) -> Finding:
    """The program `quota` ends with 1 for who is over it."""
    if not place.which("quota"):
        return Finding("quota", "ok", "no `quota` program here; sites with another one have it in their guide")
    answer = place.ask("quota", "-w")
    lines = answer.output.strip().splitlines()
    if answer.code:
        return Finding("quota", "error", lines[-1] if lines else answer.complaint, "du -sh ~/* | sort -h | tail")
    return Finding("quota", "ok", lines[-1] if lines else "none")


def clock(place: Place) -> Finding:
    """This machine's against the file system's, which stamps the logs, and whether somebody keeps it right."""
    try:
        with tempfile.NamedTemporaryFile(dir=_existing(place.logs), prefix=".doctor-") as file:
            ahead_s = Path(file.name).stat().st_mtime - time.time()
    except OSError as error:
        return Finding("clock", "warning", f"not compared: {error}", "export LOG_DIR=/a/folder/of/yours")
    if abs(ahead_s) > CLOCKS_DIFFER_S:
        text = f"the file system's is {ahead_s:+.0f} s from this machine's; from {LOST_AFTER_S} s runs count as lost"
        return Finding("clock", "warning", text, "timedatectl status  (on both machines)")
    answer = place.ask("timedatectl", "show", "--property=NTPSynchronized", "--value")
    if answer.code == 0 and answer.output.strip() == "no":
        return Finding("clock", "warning", "nothing keeps this machine's clock right", "timedatectl set-ntp true")
    return Finding("clock", "ok", f"{abs(ahead_s):.1f} s from the file system's")


def network(place: Place, interfaces: Sequence[str] = tuple(name for _, name in socket.if_nameindex())) -> Finding:
    """NCCL takes beginnings of names, `^` those not to use, `=` whole names; gloo takes whole names."""
    fix = f"set it in cluster.env to one of: {' '.join(interfaces)}  (ip -br address)"
    for variable in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"):
        value = place.environment.get(variable, "")
        names = value.lstrip("^=").split(",")
        exact = variable.startswith("GLOO") or value.startswith(("=", "^="))
        hit = [one for one in interfaces if one in names or (not exact and one.startswith(tuple(names)))]
        left = [one for one in interfaces if one not in (*hit, "lo")] if value.startswith("^") else hit
        if value and not left:
            return Finding("network", "error", f"{variable}={value}: no such interface here", fix)
    chosen = place.environment.get("NCCL_SOCKET_IFNAME")
    text = f"NCCL_SOCKET_IFNAME={chosen}" if chosen else "NCCL_SOCKET_IFNAME not set: NCCL chooses"
    return Finding("network", "ok", f"{text} of {' '.join(interfaces)}")


def _existing(folder: Path) -> Path:
    folder = folder.resolve()
    return next(path for path in (folder, *folder.parents) if path.is_dir())


CHECKS: tuple[Callable[[Place], Finding | None], ...] = (
    *(python, packages, torch, gpus, nccl, compiler, operators, cache, wandb),
    *(slurm, launchers, accounting, space, quota, clock, network),
)
